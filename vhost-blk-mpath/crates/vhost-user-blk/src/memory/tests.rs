use super::*;

/// A memory map of unshared memory. Each region is `(guest and user start, bytes)`.
pub(crate) fn anonymous(regions: &[(u64, u64)]) -> GuestMemory {
    regions.iter().fold(GuestMemory::default(), |memory, &(start, bytes)| {
        let layout = RegionLayout { guest_start: start, user_start: start, bytes, file_offset: 0 };
        let page_bytes = rustix::param::page_size();
        let mapped_bytes = usize::try_from(bytes).unwrap().next_multiple_of(page_bytes);
        let mapping = Mapping::guarded(MmapRegion::new(mapped_bytes).unwrap(), page_bytes, bytes).unwrap();
        memory.insert(Region { layout, mapping: Arc::new(mapping) }).unwrap()
    })
}

fn file(bytes: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    file
}

fn layout(guest_start: u64, bytes: u64) -> RegionLayout {
    RegionLayout { guest_start, user_start: guest_start + 0x7000_0000, bytes, file_offset: 0 }
}

#[test]
fn guest_addresses_are_found_and_bounded() {
    let memory = anonymous(&[(0x1000, 0x1000), (0x4000, 0x2000)]);
    assert!(memory.guest_slice(0xfff, 1).is_none());
    assert_eq!(memory.guest_slice(0x1000, 0x1000).unwrap().len(), 0x1000);
    assert_eq!(memory.guest_slice(0x1fff, 8).unwrap().len(), 1);
    assert!(memory.guest_slice(0x2000, 1).is_none());
    assert_eq!(memory.guest_slice(0x5000, 0x10_0000).unwrap().len(), 0x1000);
    assert!(memory.guest_slice(u64::MAX, u64::MAX).is_none());
}

#[test]
fn host_addresses_are_translated_to_guest_addresses() {
    let file_offset = RegionLayout { file_offset: 0x800, ..layout(0x9000, 0x1000) };
    let memory = anonymous(&[(0x1000, 0x1000), (0x4000, 0x2000)]).with_region(file_offset, file(0x1800)).unwrap();
    for address in [0x1000, 0x1fff, 0x4000, 0x5123, 0x9000, 0x9fff] {
        let slice = memory.guest_slice(address, 1).unwrap();
        let host = NonNull::new(slice.ptr_guard_mut().as_ptr()).unwrap();
        assert_eq!(memory.guest_address(host), Some(address), "{address:#x}");
    }
    let first = memory.guest_slice(0x9000, 1).unwrap().ptr_guard_mut().as_ptr();
    assert_eq!(
        memory.guest_address(NonNull::new(first.wrapping_sub(1)).unwrap()),
        None,
        "of the file, not of the guest"
    );
    assert_eq!(memory.guest_address(NonNull::dangling()), None);
    assert_eq!((memory.guest_end(), GuestMemory::default().guest_end()), (0xa000, 0));
}

#[test]
fn core_dumps_have_no_guest_memory() {
    let mapping = map_file(file(0x3000), 0x3000).unwrap();
    let start = format!("{:x}-", mapping.region().as_ptr().addr());
    let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = mappings.lines().skip_while(|line| !line.starts_with(&start));
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
    assert!(flags.split(' ').any(|flag| flag == "dd"), "{flags}");
}

#[test]
fn user_ranges_must_lie_in_one_region() {
    let memory = anonymous(&[(0x1000, 0x1000), (0x2000, 0x1000)]);
    assert!(memory.user_slice(0x1800, 0x800).is_some());
    assert!(memory.user_slice(0x1800, 0x801).is_none());
    assert!(memory.user_slice(u64::MAX, 2).is_none());
}

#[test]
fn regions_are_added_removed_and_never_overlap() {
    let memory = GuestMemory::default().with_region(layout(0x1000, 0x1000), file(0x1000)).unwrap();
    for start in [0x0, 0x1000, 0x1800] {
        let refused = memory.with_region(layout(start, 0x1001), file(0x2000));
        assert!(matches!(refused, Err(MemoryError::Overlap { .. })), "{start:#x}");
    }
    let both = memory.with_region(layout(0x2000, 0x1000), file(0x1000)).unwrap();
    let one = both.without_region(&layout(0x1000, 0x1000)).unwrap();
    assert!(one.guest_slice(0x1000, 1).is_none() && one.guest_slice(0x2000, 1).is_some());
    assert!(matches!(one.without_region(&layout(0x1000, 0x1000)), Err(MemoryError::NoSuchRegion { .. })));
}

#[test]
fn a_region_beyond_its_file_is_refused() {
    let at_offset = RegionLayout { file_offset: 0x800, ..layout(0, 0x1000) };
    let refused = GuestMemory::default().with_region(at_offset, file(0x1000));
    assert!(matches!(refused, Err(MemoryError::BeyondFile { file_bytes: 0x1000, region_end: 0x1800 })));
}

#[test]
fn ranges_that_wrap_are_refused() {
    for bad in [layout(0, 0), RegionLayout { guest_start: u64::MAX, ..layout(0, 2) }] {
        let refused = GuestMemory::default().with_region(bad, file(0x1000));
        assert!(matches!(refused, Err(MemoryError::BadRange { .. })));
    }
}

#[test]
fn a_region_starts_at_its_offset_in_the_file() {
    use std::os::unix::fs::FileExt;
    let file = file(0x2000);
    file.write_at(b"here", 0x1000).unwrap();
    let at_offset = RegionLayout { file_offset: 0x1000, ..layout(0x8000, 0x1000) };
    let memory = GuestMemory::default().with_region(at_offset, file).unwrap();
    let mut bytes = [0; 4];
    memory.guest_slice(0x8000, 4).unwrap().copy_to(&mut bytes);
    assert_eq!(&bytes, b"here");
}

#[test]
fn a_file_system_that_a_server_answers_for_is_remote() {
    let mut file_system = fstatfs(file(4096)).unwrap();
    for (magic, name) in [
        (libc::TMPFS_MAGIC, None),
        (libc::HUGETLBFS_MAGIC, None),
        (libc::EXT4_SUPER_MAGIC, None),
        (libc::FUSE_SUPER_MAGIC, Some("FUSE")),
        (0xff53_4d42, Some("CIFS")),
        (libc::NFS_SUPER_MAGIC, Some("NFS")),
    ] {
        file_system.f_type = magic;
        assert_eq!(remote(&file_system), name);
    }
}
