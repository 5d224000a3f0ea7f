//! Decides: minutes of the history are kept, and the oldest are dropped.
//!
//! The history of a disk next to its socket: a first line with the version, then one frame for each minute. A frame is a
//! [`HistoryMinute`] in postcard's form, made free of zeros (COBS), and a zero. So whatever a crash or another program leaves in the
//! file costs the minutes there, and no others.
//!
//! Nothing in the file decides about data, and nothing is synced: a crash of the host costs the last minutes.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mpath_api::types::HistoryMinute;

use crate::disk_files::file::{remove, with_suffix};

/// The first line. The form of [`HistoryMinute`] is part of the version.
const FIRST_LINE: &[u8] = b"vhost-blk-mpath history 1\n";
/// The largest file that is read.
const LARGEST_BYTES: u64 = 64 << 20;

/// The length of a minute. Minutes begin with those of the host's clock.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The time since the last full minute of the host's clock.
pub(crate) fn since_minute(time: SystemTime) -> Duration {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_nanos((since_epoch.as_nanos() % MINUTE.as_nanos()) as u64)
}

/// Why a minute is not kept, or the history cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HistoryFileError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("cannot write a minute: {0}")]
    Encode(#[from] postcard::Error),
}

/// The history of one disk.
#[derive(Debug)]
pub(crate) struct HistoryFile {
    path: PathBuf,
    /// Held by those that use the file. True once the disk is removed, when nothing more is written.
    is_removed: Mutex<bool>,
}

impl HistoryFile {
    /// The file next to this vhost-user socket.
    pub(crate) fn new(socket: &Path) -> Self {
        Self { path: with_suffix(socket, ".history"), is_removed: Mutex::new(false) }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a minute. If the file would be larger than `largest_bytes`, a quarter of it goes first, the oldest. Blocks.
    pub(crate) fn add(&self, minute: &HistoryMinute, largest_bytes: u64) -> Result<(), HistoryFileError> {
        let frame = postcard::to_stdvec_cobs(minute)?;
        let is_removed = self.is_removed.lock().unwrap_or_else(PoisonError::into_inner);
        if *is_removed {
            return Ok(());
        }
        let mut file = open(&self.path)?;
        let length = file.seek(SeekFrom::End(0))?;
        if !has_version(&mut file)? {
            return Ok(replace(&self.path, &[FIRST_LINE, &frame].concat())?);
        }
        if length + frame.len() as u64 > largest_bytes {
            return Ok(replace(&self.path, &newest(&mut file, largest_bytes, &frame)?)?);
        }
        // A write that was cut short ends here, so that only its own minute is lost.
        file.seek(SeekFrom::Start(length - 1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last[0] != 0 && length > FIRST_LINE.len() as u64 {
            file.write_all(&[0])?;
        }
        Ok(file.write_all(&frame)?)
    }

    /// The minutes that began from `from` until `until`, the oldest first: at most `most`, the latest. Blocks.
    pub(crate) fn read(&self, from: &str, until: &str, most: usize) -> Result<Vec<HistoryMinute>, HistoryFileError> {
        let _used = self.is_removed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = match File::open(&self.path) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        if !has_version(&mut file)? {
            return Ok(Vec::new());
        }
        let mut frames = read_frames(&mut file)?;
        let frames = frames.split_mut(|byte| *byte == 0).filter(|frame| !frame.is_empty());
        let minutes = frames.filter_map(|frame| postcard::from_bytes_cobs::<HistoryMinute>(frame).ok());
        // All times have one form, so they are in the order of their texts.
        let mut minutes: Vec<_> = minutes.filter(|minute| from <= &*minute.began && &*minute.began <= until).collect();
        minutes.drain(..minutes.len().saturating_sub(most));
        Ok(minutes)
    }

    /// Removes the file for good, because the disk is removed. Blocks.
    pub(crate) fn forget(&self) {
        *self.is_removed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        if let Err(error) = remove(&self.path) {
            tracing::warn!(file = %self.path.display(), %error, "cannot remove the history of a removed disk; remove the file");
        }
    }
}

/// The newest minutes, three quarters of `largest_bytes` at most, and one more.
fn newest(file: &mut File, largest_bytes: u64, frame: &[u8]) -> io::Result<Vec<u8>> {
    let frames = read_frames(file)?;
    let room = (largest_bytes / 4 * 3).saturating_sub(frame.len() as u64) as usize;
    let from = frames.len().saturating_sub(room);
    // From the beginning of a frame.
    let begin =
        if from == 0 { 0 } else { from + frames[from..].iter().position(|byte| *byte == 0).map_or(0, |at| at + 1) };
    Ok([FIRST_LINE, &frames[begin..], frame].concat())
}

fn open(path: &Path) -> io::Result<File> {
    // Do not write through a link that another user has put there.
    File::options().mode(0o600).read(true).append(true).create(true).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Whether the file begins as this daemon writes it. The next read is after the first line.
fn has_version(file: &mut File) -> io::Result<bool> {
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(FIRST_LINE.len() as u64).read_to_end(&mut line)?;
    Ok(line == FIRST_LINE)
}

fn read_frames(file: &mut File) -> io::Result<Vec<u8>> {
    let mut frames = Vec::new();
    file.seek(SeekFrom::Start(FIRST_LINE.len() as u64))?;
    file.take(LARGEST_BYTES).read_to_end(&mut frames)?;
    Ok(frames)
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    let mut file = File::options()
        .mode(0o600)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&new)?;
    file.write_all(content)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use mpath_api::types::{ClassFigures, MinuteFigures, PathMinute, Stages};

    use super::*;

    fn minute(number: u32) -> HistoryMinute {
        let figures = MinuteFigures { ios: 1200, p50_us: 85, p99_us: 410, max_us: 2200 };
        let guest = ClassFigures { read: Some(figures), write: Some(figures), other: None };
        let path = |index| PathMinute { index, address: format!("tcp://192.0.2.{index}:4420"), io: guest };
        HistoryMinute {
            began: format!("2026-11-30T{:02}:{:02}:00.000Z", number / 60, number % 60),
            guest,
            long_requests: Stages::default(),
            host_stalled_ms: 0,
            slowest: None,
            paths: vec![path(0), path(1)],
        }
    }

    fn all(file: &HistoryFile) -> Vec<HistoryMinute> {
        file.read("", "9", 10_000).unwrap()
    }

    #[test]
    fn minutes_are_found_again_by_their_times() {
        let place = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(&place.path().join("disk.sock"));
        assert_eq!(all(&file), []);
        (0..100).for_each(|number| file.add(&minute(number), 1 << 20).unwrap());
        let next = HistoryFile::new(&place.path().join("disk.sock"));
        assert_eq!(all(&next), (0..100).map(minute).collect::<Vec<_>>());
        let between = next.read("2026-11-30T00:10:30.000Z", "2026-11-30T00:12:00.000Z", 10).unwrap();
        assert_eq!(between, [minute(11), minute(12)]);
        assert_eq!(next.read("", "9", 1).unwrap(), [minute(99)]);
    }

    /// 2880 minutes of a busy disk with two paths.
    #[test]
    fn two_days_take_half_a_mebibyte_and_no_more() {
        let place = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(&place.path().join("disk.sock"));
        (0..2880).for_each(|number| file.add(&minute(number % 1440), 1 << 20).unwrap());
        let bytes = fs::metadata(file.path()).unwrap().len();
        assert!((300_000..1 << 19).contains(&bytes), "{bytes}");
        let largest = 100_000;
        for number in 0..1440 {
            file.add(&minute(number), largest).unwrap();
            assert!(fs::metadata(file.path()).unwrap().len() <= largest);
        }
        let left = all(&file);
        let expected = ((1440 - left.len() as u32)..1440).map(minute).collect::<Vec<_>>();
        assert!(left.len() > 400 && left == expected, "{}", left.len());
    }

    #[test]
    fn damage_costs_the_minutes_where_it_is() {
        let place = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(&place.path().join("disk.sock"));
        file.add(&minute(1), 1 << 20).unwrap();
        let whole = fs::read(file.path()).unwrap();
        fs::write(file.path(), [&whole[..], &whole[FIRST_LINE.len()..whole.len() - 9]].concat()).unwrap();
        file.add(&minute(2), 1 << 20).unwrap();
        assert_eq!(all(&file), [minute(1), minute(2)]);
        for text in ["", "vhost-blk-mpath history 2\n\u{1}", "{"] {
            fs::write(file.path(), text).unwrap();
            assert_eq!(all(&file), []);
            file.add(&minute(3), 1 << 20).unwrap();
            assert_eq!(all(&file), [minute(3)], "{text}");
        }
    }

    /// Another form of a minute needs another version of the file.
    #[test]
    fn the_form_of_a_minute_belongs_to_the_version() {
        let frame = postcard::to_stdvec(&HistoryMinute { paths: Vec::new(), ..minute(1) }).unwrap();
        let mut expected = vec![24];
        expected.extend(b"2026-11-30T00:01:00.000Z");
        for _ in 0..2 {
            expected.extend([1, 0xb0, 0x09, 85, 0x9a, 0x03, 0x98, 0x11]);
        }
        expected.extend([0; 1 + 10 + 1 + 1 + 1]);
        assert_eq!(frame, expected);
    }

    #[test]
    fn a_removed_disk_has_no_history() {
        let place = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(&place.path().join("disk.sock"));
        file.add(&minute(1), 1 << 20).unwrap();
        file.forget();
        file.add(&minute(2), 1 << 20).unwrap();
        assert!(!file.path().exists());
    }
}
