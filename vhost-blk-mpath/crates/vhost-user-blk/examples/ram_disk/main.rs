//! A disk in memory on a vhost-user socket, to try front-ends with: `ram_disk SOCKET [MIB] [QUEUES] [FILE]`. FILE has
//! the initial contents of the disk.

mod ram_disk;

use std::os::unix::net::UnixListener;
use std::sync::Arc;

use vhost_user_blk::{DiskGeometry, VirtioDisk, serve_connection};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let Some(socket) = args.next() else { return Err("usage: ram_disk SOCKET [MIB] [QUEUES] [FILE]".into()) };
    let mebibytes: u64 = args.next().map_or(Ok(64), |arg| arg.parse())?;
    let num_queues = args.next().map_or(Ok(2), |arg| arg.parse())?;
    let disk = Arc::new(VirtioDisk::new(DiskGeometry {
        num_queues,
        serial: *b"ram-disk\0\0\0\0\0\0\0\0\0\0\0\0",
        max_discard_sectors: 1 << 20,
        max_write_zeroes_sectors: 1 << 20,
        write_zeroes_may_unmap: true,
        ..DiskGeometry::new(mebibytes << 11, 512)
    })?);
    let ram = ram_disk::RamDisk::new(&disk);
    if let Some(file) = args.next() {
        ram.load(&std::fs::read(file)?);
    }
    let listener = UnixListener::bind(&socket)?;
    println!("{mebibytes} MiB, {num_queues} queues on {socket}");
    for stream in listener.incoming() {
        match serve_connection(stream?, &disk, &ram) {
            Ok(()) => println!("front-end hung up"),
            Err(error) => eprintln!("front-end gone: {error}"),
        }
    }
    Ok(())
}
