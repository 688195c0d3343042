//! Whom the servers run as.

use nix::unistd::{User, geteuid};
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
        let own = geteuid();
        if own.is_root() {
            return ["postgres", "nobody"]
                .iter()
                .find_map(|name| User::from_name(name).ok().flatten())
                .map(|user| Self::of(user, true))
                .ok_or(ClusterError::NoServerUser);
        }
        let user = User::from_uid(own).ok().flatten();
        Ok(user.map_or_else(|| Self::nameless(own.as_raw()), |user| Self::of(user, false)))
    }

    fn of(user: User, changed: bool) -> Self {
        Self { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw(), changed }
    }

    /// A user without an entry in the password file, as in containers.
    fn nameless(uid: u32) -> Self {
        let gid = nix::unistd::getegid().as_raw();
        Self { name: format!("#{uid}"), uid, gid, changed: false }
    }
}
