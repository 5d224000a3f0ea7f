//! Decides: minutes of the history are kept, and the oldest are dropped.
//!
//! The history of a disk next to its socket: a first line with the version, then one frame for each minute. A frame is a
//! [`HistoryMinute`] in postcard's form, made free of zeros (COBS), and a zero. So whatever a crash or another program leaves in the
//! file costs the minutes there, and no others.
//!
//! Nothing in the file decides about data, and a minute is not synced: a crash of the host costs the last minutes.

use std::fs::{File, rename};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use mpath_api::types::HistoryMinute;

use crate::disk_files::file::{open, remove, replace_with, with_suffix};

/// The first line. The form of [`HistoryMinute`] is part of the version.
const FIRST_LINE: &[u8] = b"vhost-blk-mpath history 1\n";
/// The largest file that is read.
const LARGEST_BYTES: u64 = 64 << 20;

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
    /// Held by those that use the file.
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The disk is removed, and nothing more is written.
    is_removed: bool,
    /// The last minute was not kept, which the log has said.
    is_failing: bool,
}

impl HistoryFile {
    /// The file next to this vhost-user socket.
    pub(crate) fn new(socket: &Path) -> Self {
        Self { path: with_suffix(socket, ".history"), state: RwLock::default() }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a minute, or logs once why not. Blocks.
    pub(crate) fn keep(&self, minute: &HistoryMinute, largest_bytes: u64) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.is_removed {
            return;
        }
        let error = self.add(minute, largest_bytes).err();
        if let Some(error) = error.as_ref().filter(|_| !state.is_failing) {
            tracing::warn!(file = %self.path.display(), %error, "cannot keep the history of a disk; the next minute is tried again");
        }
        state.is_failing = error.is_some();
    }

    /// Adds a minute. If the file would be larger than `largest_bytes`, a quarter of it goes first, the oldest.
    fn add(&self, minute: &HistoryMinute, largest_bytes: u64) -> Result<(), HistoryFileError> {
        let frame = postcard::to_stdvec_cobs(minute)?;
        let mut file = open(&self.path, File::options().read(true).append(true).create(true))?;
        let length = file.seek(SeekFrom::End(0))?;
        if !has_version(&mut file)? {
            if length == 0 {
                return Ok(replace_with(&self.path, &[FIRST_LINE, &frame].concat())?);
            }
            self.set_aside()?;
            return self.add(minute, largest_bytes);
        }
        if length + frame.len() as u64 > largest_bytes {
            return Ok(replace_with(&self.path, &newest(&mut file, largest_bytes, &frame)?)?);
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
        let _used = self.state.read().unwrap_or_else(PoisonError::into_inner);
        // After a roll-back, the history of this version is still set aside until a minute is added.
        let own = open_own(&self.path)?.map_or_else(|| open_own(&self.old()), |file| Ok(Some(file)));
        let Some(mut file) = own? else { return Ok(Vec::new()) };
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
        self.state.write().unwrap_or_else(PoisonError::into_inner).is_removed = true;
        for file in [&self.path, &self.old()] {
            if let Err(error) = remove(file) {
                tracing::warn!(file = %file.display(), %error, "cannot remove the history of a removed disk; remove the file");
            }
        }
    }

    /// Puts the history of another version next to the file, for that version. Takes a history of this version from there, which that
    /// version has put there: this may be a roll-back.
    fn set_aside(&self) -> io::Result<()> {
        let (old, between) = (self.old(), with_suffix(&self.path, ".new"));
        if open_own(&old)?.is_none() {
            return rename(&self.path, old);
        }
        rename(&self.path, &between)?;
        rename(&old, &self.path)?;
        rename(between, old)
    }

    /// The history of another version.
    fn old(&self) -> PathBuf {
        with_suffix(&self.path, ".old")
    }
}

/// The newest minutes, three quarters of `largest_bytes` at most, and one more.
fn newest(file: &mut File, largest_bytes: u64, frame: &[u8]) -> io::Result<Vec<u8>> {
    let mut frames = read_frames(file)?;
    // A write that was cut short ends here.
    if frames.last().is_some_and(|last| *last != 0) {
        frames.push(0);
    }
    let room = (largest_bytes / 4 * 3).saturating_sub(frame.len() as u64) as usize;
    let from = frames.len().saturating_sub(room);
    // From the beginning of a frame.
    let begin =
        if from == 0 { 0 } else { from + frames[from..].iter().position(|byte| *byte == 0).map_or(0, |at| at + 1) };
    Ok([FIRST_LINE, &frames[begin..], frame].concat())
}

/// Whether the file begins as this daemon writes it. The next read is after the first line.
fn has_version(file: &mut File) -> io::Result<bool> {
    let mut line = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(FIRST_LINE.len() as u64).read_to_end(&mut line)?;
    Ok(line == FIRST_LINE)
}

/// A history of this version, with the next read after the first line. `None` if there is none.
fn open_own(path: &Path) -> io::Result<Option<File>> {
    match open(path, File::options().read(true)) {
        Ok(mut file) => Ok(has_version(&mut file)?.then_some(file)),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_frames(file: &mut File) -> io::Result<Vec<u8>> {
    let mut frames = Vec::new();
    file.seek(SeekFrom::Start(FIRST_LINE.len() as u64))?;
    file.take(LARGEST_BYTES).read_to_end(&mut frames)?;
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use monotonic::Duration;
    use mpath_api::types::{
        ClassFigures, GuestErrorReason, GuestOperation, MinuteFigures, PathMinute, SlowRequest, Stages,
    };

    use super::*;

    fn minute(number: u32) -> HistoryMinute {
        let figures = MinuteFigures { ios: 1200, p50_us: 85, p99_us: 410, max_us: 2200 };
        let guest = ClassFigures { read: Some(figures), write: Some(figures), other: None };
        let path = |index| PathMinute { index, address: format!("tcp://192.0.2.{index}:4420"), io: guest };
        let us = Duration::from_micros;
        let stages = Stages { queue: us(35_100), path: us(412_000), host: us(7_000), ..Stages::default() };
        let slowest = SlowRequest {
            disk: "disk0".into(),
            ended: "2026-11-30T03:12:40.250Z".into(),
            operation: GuestOperation::Write,
            queue: 3,
            sector: Some(1_000_000),
            bytes: 4096,
            total_us: 12_400,
            stages,
            longest: "path".into(),
            index: Some(1),
            paths: vec![0, 1],
            attempts: 2,
            error: Some(GuestErrorReason::Medium),
        };
        HistoryMinute {
            began: format!("2026-11-30T{:02}:{:02}:00.000Z", number / 60, number % 60),
            seconds: 60,
            guest,
            long_requests: stages,
            host_stalled_ms: 7,
            oldest_request_ms: Some(1_500),
            slowest: Some(slowest),
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
    fn two_days_take_600_kilobytes() {
        let place = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(&place.path().join("disk.sock"));
        (0..2880).for_each(|number| file.add(&minute(number % 1440), 1 << 20).unwrap());
        let bytes = fs::metadata(file.path()).unwrap().len();
        assert!((550_000..700_000).contains(&bytes), "{bytes}");
        let largest = 100_000;
        for number in 0..1440 {
            file.add(&minute(number), largest).unwrap();
            assert!(fs::metadata(file.path()).unwrap().len() <= largest);
        }
        let left = all(&file);
        let expected = ((1440 - left.len() as u32)..1440).map(minute).collect::<Vec<_>>();
        assert!(left.len() > 300 && left == expected, "{}", left.len());
    }

    #[test]
    fn a_write_that_was_cut_short_costs_no_later_minute() {
        let place = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(&place.path().join("disk.sock"));
        (0..20).for_each(|number| file.add(&minute(number), 1 << 20).unwrap());
        let mut bytes = fs::read(file.path()).unwrap();
        bytes.truncate(bytes.len() - 9);
        fs::write(file.path(), &bytes).unwrap();
        file.add(&minute(20), bytes.len() as u64).unwrap();
        assert_eq!(all(&file).last(), Some(&minute(20)), "the file was full, too");
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
            assert_eq!(all(&file), [], "{text}");
            file.add(&minute(3), 1 << 20).unwrap();
            assert_eq!(all(&file), [minute(3)], "{text}");
            assert_eq!(fs::read_to_string(file.old()).unwrap_or_default(), text);
        }
    }

    #[test]
    fn a_roll_back_finds_the_history_of_its_version() {
        let place = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(&place.path().join("disk.sock"));
        file.add(&minute(1), 1 << 20).unwrap();
        let own = fs::read(file.path()).unwrap();
        // The next version does the same with this one's.
        let next = "vhost-blk-mpath history 2\n\u{1}";
        fs::write(file.old(), own).unwrap();
        fs::write(file.path(), next).unwrap();
        assert_eq!(all(&file), [minute(1)]);
        file.add(&minute(2), 1 << 20).unwrap();
        assert_eq!(all(&file), [minute(1), minute(2)]);
        assert_eq!(fs::read_to_string(file.old()).unwrap(), next);
    }

    /// Another form of a minute needs another version of the file.
    #[test]
    fn the_form_of_a_minute_belongs_to_the_version() {
        let frame = postcard::to_stdvec(&HistoryMinute { paths: minute(1).paths[..1].to_vec(), ..minute(1) }).unwrap();
        let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
        let figures = [1, 0xb0, 0x09, 85, 0x9a, 0x03, 0x98, 0x11];
        let io = [&figures[..], &figures, &[0]].concat();
        // Limit, no path, queue, injection, send, path, earlier attempts, retry, fence, host.
        let stages = [0, 0, 0x9c, 0x92, 0x02, 0, 0, 0xe0, 0x92, 0x19, 0, 0, 0, 0xd8, 0x36];
        let slowest = [
            &[1][..],
            &text("disk0"),
            &text("2026-11-30T03:12:40.250Z"),
            &[1, 3, 1, 0xc0, 0x84, 0x3d, 0x80, 0x20, 0xf0, 0x60],
            &stages,
            &text("path"),
            &[1, 1, 2, 0, 1, 2, 1, 0],
        ];
        let expected = [
            &text("2026-11-30T00:01:00.000Z")[..],
            &[60],
            &io,
            &stages,
            &[7, 1, 0xdc, 0x0b],
            &slowest.concat(),
            &[1, 0],
            &text("tcp://192.0.2.0:4420"),
            &io,
        ];
        assert_eq!(frame, expected.concat());
    }

    #[test]
    fn a_removed_disk_has_no_history() {
        let place = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(&place.path().join("disk.sock"));
        fs::write(file.path(), "vhost-blk-mpath history 2\n").unwrap();
        file.add(&minute(1), 1 << 20).unwrap();
        assert!(file.path().exists() && file.old().exists());
        file.forget();
        file.keep(&minute(2), 1 << 20);
        assert!(!file.path().exists() && !file.old().exists());
    }

    #[test]
    fn a_pipe_or_a_link_is_no_history() {
        let place = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(&place.path().join("disk.sock"));
        let other = place.path().join("other");
        assert!(Command::new("mkfifo").arg(file.path()).status().unwrap().success());
        assert!(file.read("", "9", 1).is_err() && file.add(&minute(1), 1 << 20).is_err());
        fs::remove_file(file.path()).unwrap();
        std::os::unix::fs::symlink(&other, file.path()).unwrap();
        assert!(file.add(&minute(1), 1 << 20).is_err() && !other.exists());
    }
}
