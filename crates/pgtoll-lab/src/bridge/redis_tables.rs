//! Redis as foreign tables: command lines for `file_fdw`, and the scripts that Redis runs for them.

use std::path::PathBuf;

use pgtoll_cluster::{ClusterError, Guard, Redis, RunningRedis};

/// A hash as CSV, with a title in its first line: where the hash is empty or absent there is the title
/// alone, so that no rows are told from no answer.
const HASH_SCRIPT: &str = "\
local function quoted(text) return '\"' .. text:gsub('\"', '\"\"') .. '\"' end
local rows = {'field,value'}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  rows[#rows + 1] = quoted(all[i]) .. ',' .. quoted(all[i + 1])
end
return rows
";

/// A script that prints Redis's own facts and counters as CSV.
const INFO_SCRIPT: &str = "\
local function quoted(text) return '\"' .. text:gsub('\"', '\"\"') .. '\"' end
local rows = {'name,value'}
for name, value in redis.call('INFO'):gmatch('([%w_]+):([^\\r\\n]*)') do
  rows[#rows + 1] = quoted(name) .. ',' .. quoted(value)
end
return rows
";

/// The command lines of one Redis.
pub(super) struct RedisPrograms {
    client: String,
    socket: PathBuf,
    pub(super) hash_script: RedisScript,
    pub(super) info_script: RedisScript,
}

/// A script that Redis runs.
pub(super) struct RedisScript {
    /// Its file.
    pub(super) file: PathBuf,
    pub(super) text: &'static str,
}

impl RedisPrograms {
    /// Writes the scripts.
    pub(super) fn write(
        guard: &mut Guard,
        redis: &Redis,
        running: &RunningRedis,
    ) -> Result<Self, ClusterError> {
        let script = |name: &str, text| RedisScript { file: running.directory().join(name), text };
        let programs = Self {
            client: redis.client()?.to_owned(),
            socket: running.socket(),
            hash_script: script("hash.lua", HASH_SCRIPT),
            info_script: script("info.lua", INFO_SCRIPT),
        };
        for script in [&programs.hash_script, &programs.info_script] {
            guard.write(&script.file, script.text.to_owned())?;
        }
        Ok(programs)
    }

    /// Prints a hash. `-e`: an error of Redis is one of the program, and so of the query. There is no
    /// pipe, which would hide the program's exit status.
    pub(super) fn hash(&self, key: &str) -> String {
        format!("{} {key}", self.program_for(&self.hash_script))
    }

    /// The same by a pipe, as one would write it at first, to show what becomes of an error. `option`
    /// is one of `redis-cli`.
    pub(super) fn piped_hash(&self, option: &str, key: &str) -> String {
        let client = &self.client;
        let socket = self.socket.display();
        format!("{client} {option}-s {socket} HGETALL {key} | paste -d, - -")
    }

    /// Prints what Redis says of itself.
    pub(super) fn info(&self) -> String {
        self.program_for(&self.info_script)
    }

    fn program_for(&self, script: &RedisScript) -> String {
        let socket = self.socket.display();
        let script = script.file.display();
        format!("{} -e --raw -s {socket} --eval {script}", self.client)
    }
}
