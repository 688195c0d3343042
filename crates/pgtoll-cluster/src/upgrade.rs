//! A cluster of a later major version, made of another by `pg_upgrade`.

use std::collections::BTreeMap;

use pgtoll_format::conf::{self, Entry};

use crate::{Cluster, ClusterError, Guard, Installation, StopMode};

/// The settings of `include_settings`, which each cluster has.
const PLACE: [&str; 3] = ["listen_addresses", "port", "unix_socket_directories"];

/// The facts of a cluster that `initdb` has to repeat for `pg_upgrade`.
struct Kind {
    options: Vec<String>,
    has_checksums: bool,
    bootstrap_user: String,
}

impl Cluster {
    /// A copy of this cluster, which must be stopped, for a server of a later major version: by
    /// `pg_upgrade`, which both installations need to have whole, and `ANALYZE`. It has this one's
    /// configuration; the second value names settings that the later server refuses.
    pub fn upgrade(
        &self,
        guard: &mut Guard,
        later: &Installation,
        name: &str,
    ) -> Result<(Self, Vec<String>), ClusterError> {
        let program = later.program("pg_upgrade")?;
        let kind = self.kind(guard)?;
        let options: Vec<&str> = kind.options.iter().map(String::as_str).collect();
        let upgraded = Self::init_with(guard, later, name, kind.has_checksums, &options)?;
        let bin = self.client("postgres")?.with_file_name("");
        let bins = [&bin, &later.bin].map(|one| one.to_string_lossy().into_owned());
        let data = [self.data(), upgraded.data()].map(|one| one.to_string_lossy().into_owned());
        let arguments = ["-b", &bins[0], "-B", &bins[1], "-d", &data[0], "-D", &data[1]];
        let user = ["-U", &*kind.bootstrap_user];
        guard.run(&program, &[&arguments[..], &user[..]].concat())?;
        let refused = self.copy_configuration(guard, &upgraded)?;
        upgraded.start(guard)?;
        // Before PostgreSQL 18 statistics do not come along.
        upgraded.run_client(guard, "vacuumdb", &["--all", "--analyze-only", "--quiet"])?;
        upgraded.stop(guard, StopMode::Fast)?;
        Ok((upgraded, refused))
    }

    fn kind(&self, guard: &mut Guard) -> Result<Kind, ClusterError> {
        self.start(guard)?;
        let mut connection = self.connect("postgres")?;
        let answer = connection.query_one(
            "SELECT current_setting('data_checksums') AS checksums, \
             (SELECT rolname FROM pg_roles WHERE oid = 10) AS bootstrap, \
             pg_size_bytes(current_setting('wal_segment_size')) / 1048576 AS segment_mb, \
             pg_encoding_to_char(encoding) AS encoding, datcollate AS collate, datctype AS ctype \
             FROM pg_database WHERE datname = 'template0'",
        );
        connection.close();
        self.stop(guard, StopMode::Fast)?;
        let failed = |source| ClusterError::Connect { name: self.name().to_owned(), source };
        let row = answer.map_err(failed)?;
        let text = |name: &str| row.text(name).map(str::to_owned).map_err(failed);
        // pg_upgrade refuses another encoding or locale where it does not set them itself (before 16).
        let options = vec![
            format!("--username={}", text("bootstrap")?),
            format!("--wal-segsize={}", text("segment_mb")?),
            format!("--encoding={}", text("encoding")?),
            format!("--lc-collate={}", text("collate")?),
            format!("--lc-ctype={}", text("ctype")?),
        ];
        let has_checksums = text("checksums")? == "on";
        Ok(Kind { options, has_checksums, bootstrap_user: text("bootstrap")? })
    }

    /// Appends this cluster's settings to another's as far as its server takes them; the names of
    /// those that it refuses.
    fn copy_configuration(
        &self,
        guard: &mut Guard,
        other: &Self,
    ) -> Result<Vec<String>, ClusterError> {
        let path = self.data().join("postgresql.conf");
        let text = pgtoll_system::read(&path, 1 << 24).map_err(ClusterError::io("read", &path))?;
        let mut settings = BTreeMap::new();
        let mut refused = Vec::new();
        for entry in conf::parse(&String::from_utf8_lossy(&text)).entries {
            let Entry::Setting { name, value } = entry else { continue };
            if PLACE.contains(&name.as_str()) {
                continue;
            }
            if other.is_accepted(guard, &name, &value)? {
                settings.insert(name, value);
            } else {
                refused.push(name);
            }
        }
        other.append_settings(guard, &settings)?;
        Ok(refused)
    }
}
