//! Whom the servers run as.

use std::fs;

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::ClusterError;

/// The operating system's user that servers run as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUser {
    /// Its name.
    pub name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// pgtoll runs as root and changes to this user.
    pub changed: bool,
}

impl ServerUser {
    /// The user itself; for root, whom PostgreSQL refuses, `postgres`, else `nobody`.
    pub fn choose() -> Result<Self, ClusterError> {
        if geteuid().is_root() {
            let passwd = fs::read_to_string(PASSWORD_FILE).unwrap_or_default();
            return ["postgres", "nobody"]
                .iter()
                .find_map(|name| entries(&passwd).find(|user| user.name == *name))
                .map(|user| Self { changed: true, ..user })
                .ok_or(ClusterError::NoServerUser);
        }
        Ok(Self::caller())
    }

    /// Its number, and that of its group.
    pub fn ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// The user that pgtoll runs as, root too.
    pub(crate) fn caller() -> Self {
        let own = geteuid().as_raw();
        let passwd = fs::read_to_string(PASSWORD_FILE).unwrap_or_default();
        let user = entries(&passwd).find(|user| user.uid == own);
        user.unwrap_or_else(|| Self::nameless(own))
    }

    /// A user without an entry in the password file: in containers, and where a directory service
    /// knows it.
    fn nameless(uid: u32) -> Self {
        let gid = nix::unistd::getegid().as_raw();
        Self { name: format!("#{uid}"), uid, gid, changed: false }
    }
}

/// Read by pgtoll itself: `getpwnam` loads modules of the very C library that a program was linked
/// with, which a static program may not find on the machine where it runs.
const PASSWORD_FILE: &str = "/etc/passwd";

/// The lines `name:password:uid:gid:…`; others are passed over, as the C library does.
fn entries(passwd: &str) -> impl Iterator<Item = ServerUser> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(ServerUser { name, uid, gid, changed: false })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(passwd: &str, expected: &[(&str, u32, u32)]) {
        let found: Vec<_> = entries(passwd).collect();
        let found: Vec<_> = found.iter().map(|s| (s.name.as_str(), s.uid, s.gid)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn users_are_read_from_the_password_file() {
        check(
            "root:x:0:0:root:/root:/bin/bash\n\
             # a comment\n\n+::::::\nbroken:x:12\nnegative:x:-1:0::/:\n\
             postgres:x:105:113:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash\n\
             short::7:8",
            &[("root", 0, 0), ("postgres", 105, 113), ("short", 7, 8)],
        );
        check("", &[]);
    }
}
