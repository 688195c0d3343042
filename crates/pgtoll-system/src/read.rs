//! Reading: regular files only, up to a limit.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens a regular file for reading. Anything else (a FIFO, a device, a directory) is an error of
/// kind [`io::ErrorKind::InvalidInput`]; opening a FIFO does not wait for a writer.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlag::empty())
}

/// Opens a regular file for reading, unless its last component is a symbolic link.
pub fn open_unlinked(path: &Path) -> io::Result<File> {
    open_with(path, OFlag::O_NOFOLLOW)
}

fn open_with(path: &Path, more: OFlag) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | more;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(file)
}

/// The content of a regular file of at most `bytes_max` bytes. A longer one is an error of kind
/// [`io::ErrorKind::FileTooLarge`].
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("longer than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Like [`read()`], for text in UTF-8.
pub fn read_to_string(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_fifo_is_refused_without_waiting_for_a_writer() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        assert_eq!(open(&fifo).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_device_without_an_end_is_refused() {
        let refused = read(Path::new("/dev/zero"), 10).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn content_up_to_the_limit_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_link_is_followed_only_where_that_is_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let link = directory.path().join("link");
        std::fs::write(&path, "1").unwrap();
        symlink(&path, &link).unwrap();
        assert!(open(&link).is_ok());
        assert!(open_unlinked(&link).is_err());
    }
}
