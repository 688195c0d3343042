//! Files that only root and the caller can change.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use rustix::fs::getxattr;

use crate::{ClusterError, Untrusted};

/// An error if users other than root and the caller may change what `path` leads to.
pub(crate) fn require_trusted(path: &Path) -> Result<(), ClusterError> {
    match changeable_by_others(path).map_err(ClusterError::io("resolve", path))? {
        None => Ok(()),
        Some(part) => {
            let reason = Untrusted { part };
            Err(ClusterError::Untrusted { path: path.to_owned(), reason })
        }
    }
}

/// The first part of `path`, from the root on, that users other than root and the caller may
/// change; `None` if there is none. Links are resolved first, so what counts is where they lead.
///
/// A sticky directory (`/tmp`) counts as one that others may change: they can put files there.
pub(crate) fn changeable_by_others(path: &Path) -> io::Result<Option<PathBuf>> {
    let path = fs::canonicalize(path)?;
    let trusted = Trusted::of_this_process();
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    for part in parts {
        let metadata = fs::symlink_metadata(part)?;
        if trusted.may_be_changed(&metadata) || has_access_list(part, &metadata) {
            return Ok(Some(part.to_owned()));
        }
    }
    Ok(None)
}

/// The owners and writers that this process trusts.
#[derive(Debug)]
struct Trusted {
    users: [u32; 2],
    /// Root's group, and the caller's if it has no other member.
    groups: [u32; 2],
}

impl Trusted {
    fn of_this_process() -> Self {
        let own = geteuid().as_raw();
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let private = (own != 0)
            .then(|| private_group(own, &read("/etc/passwd"), &read("/etc/group")))
            .flatten();
        Self { users: [0, own], groups: [0, private.unwrap_or(0)] }
    }

    /// Whether others may write to it, or own it, which lets them change its mode.
    fn may_be_changed(&self, file: &Metadata) -> bool {
        let by_group = file.mode() & 0o020 != 0 && !self.groups.contains(&file.gid());
        !self.users.contains(&file.uid()) || by_group || file.mode() & 0o002 != 0
    }
}

/// With an access control list, the group's bits of the mode are the list's mask: the most that
/// any of the users and groups in it may do.
fn has_access_list(path: &Path, file: &Metadata) -> bool {
    file.mode() & 0o020 != 0
        && getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]).is_ok_and(|bytes| bytes > 0)
}

/// The group of a user's name that many distributions make for each user, with the umask 002: it
/// is the user's primary group and has no other member.
fn private_group(uid: u32, passwd: &str, group: &str) -> Option<u32> {
    let users = || passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let number = |fields: &[&str], at: usize| fields.get(at)?.parse::<u32>().ok();
    let user = users().find(|fields| number(fields, 2) == Some(uid))?;
    let name = *user.first()?;
    let gid = number(&user, 3)?;
    let is_shared =
        users().any(|user| number(&user, 3) == Some(gid) && number(&user, 2) != Some(uid));
    let entry = group.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = entry.into_iter().find(|fields| number(fields, 2) == Some(gid))?;
    let members = entry.get(3)?.split(',').filter(|member| !member.is_empty());
    let is_alone = members.into_iter().all(|member| member == name);
    (!is_shared && is_alone && entry.first() == Some(&name)).then_some(gid)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_trusted_by_its_owner_and_mode() {
        let directory = tempfile::tempdir().unwrap();
        let file = fs::metadata(directory.path()).unwrap();
        let uid = file.uid();
        let gid = file.gid();
        let check = |mode, users, groups, expected| {
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            let file = fs::metadata(directory.path()).unwrap();
            let trusted = Trusted { users, groups };
            assert_eq!(trusted.may_be_changed(&file), expected, "{mode:o} {trusted:?}");
        };
        check(0o755, [uid; 2], [gid; 2], false);
        check(0o775, [uid; 2], [gid; 2], false);
        check(0o775, [uid; 2], [gid + 1; 2], true);
        check(0o777, [uid; 2], [gid; 2], true);
        check(0o1777, [uid; 2], [gid; 2], true);
        check(0o755, [uid + 1; 2], [gid; 2], true);
    }

    #[test]
    fn the_way_to_a_file_counts() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        let closed = directory.path().join("open/closed");
        fs::create_dir_all(&closed).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o1777)).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&closed, &link).unwrap();
        for path in [&closed, &link] {
            // The system's directory of temporary files is such a one already, as a rule.
            assert!(changeable_by_others(path).unwrap().is_some_and(|part| open.starts_with(part)));
        }
        assert!(changeable_by_others(Path::new("/no/such")).is_err());
        assert_eq!(changeable_by_others(Path::new("/")).unwrap(), None);
    }

    #[test]
    fn a_private_group_has_one_member() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n\
                      bob:x:1001:100::/home/bob:/bin/sh\neve:x:1002:1002::/:/bin/sh\n\
                      joe:x:1003:1002::/:/bin/sh\n";
        let check = |uid, group, expected| {
            assert_eq!(private_group(uid, passwd, group), expected, "{uid} {group}");
        };
        check(1000, "root:x:0:\nann:x:1000:\n", Some(1000));
        check(1000, "ann:x:1000:ann\n", Some(1000));
        check(1000, "ann:x:1000:bob\n", None);
        check(1000, "staff:x:1000:\n", None);
        check(1000, "", None);
        check(1001, "users:x:100:\n", None);
        check(1002, "eve:x:1002:\n", None);
        check(7, "root:x:0:\n", None);
    }
}
