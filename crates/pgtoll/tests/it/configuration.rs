//! `postgresql.conf`, as `conf` and as servers read it.

use std::fs;

use pgtoll_cluster::{Cluster, Guard, Installation};
use pgtoll_format::conf::{self, Entry};

use crate::support::{Scratch, servers};

/// Lines that are right and wrong.
const LINES: &str = r#"work_mem = 4MB
Work_Mem=4096 # a comment
work_mem 4MB
work_mem'4MB'
work_mem = '4 MB'#comment
work_mem = 1.5MB
work_mem = '1.5MB'
work_mem = 0x10kB
work_mem = +5
work_mem = 1e3
work_mem = 5 MB
work_mem == 1
work_mem = = 1
work_mem
work_mem =
= 1
a.b = c
a.b = c.d
a.b = c.d.e
a.b.c = d
a.1 = d
a.b = en_US.UTF-8
a.b = x:y/z-1
a.b = /tmp
a.b = -1.5e+3
a.b = .
a.b = äö
a.b = 'ä # = '' \' \\ \n\t\101\60x'
a.b = ''
a.b = ''''
a.b = 'c''
a.b = 'c\'
a.b = 'c' 'd'
a.b = "c"
'a.b' = c
a-b = c
# 'a comment
"#;

#[test]
fn lines_mean_what_they_mean_to_servers() {
    let scratch = Scratch::new();
    let mut guard = scratch.guard();
    for server in servers() {
        let name = format!("conf-{}", server.version.major());
        let cluster = Cluster::init_with(&mut guard, &server, &name, false, &[]).unwrap();
        cluster.configure(&mut guard, &[].into()).unwrap();
        cluster.start(&mut guard).unwrap();
        let mut connection = cluster.connect("postgres").unwrap();
        let file = cluster.data().join("pgtoll-settings.conf");
        // Tabs and carriage returns are blanks.
        for line in LINES.lines().chain(["\twork_mem\t=\t4MB \t\r"]) {
            // The server reads no further than to a line that is wrong.
            fs::write(&file, format!("{line}\nwork_mem = 1\n")).unwrap();
            let rows = connection
                .query(
                    "SELECT sourceline, lower(name), setting FROM pg_file_settings \
                     WHERE sourcefile LIKE '%pgtoll-settings.conf' ORDER BY seqno",
                )
                .unwrap();
            let shown: Vec<Vec<Option<String>>> =
                rows.iter().map(|row| row.values().to_vec()).collect();
            assert_eq!(shown, read(&format!("{line}\nwork_mem = 1\n")), "{name}: {line}");
        }
        connection.close();
        check_values(&mut guard, &server, &cluster);
        cluster.remove(&mut guard).unwrap();
    }
}

/// What `conf` reads up to the first error, as `pg_file_settings` shows it.
fn read(text: &str) -> Vec<Vec<Option<String>>> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.split('\n')) {
        let file = conf::parse(line);
        let number = Some(i32::to_string(&number));
        for entry in file.entries {
            let Entry::Setting { name, value } = entry else { panic!("{line}: {entry:?}") };
            lines.push(vec![number.clone(), Some(name), Some(value)]);
        }
        if !file.errors.is_empty() {
            lines.push(vec![number, None, None]);
            break;
        }
    }
    lines
}

/// Which values servers take, and for how much, in the setting's own unit.
fn check_values(guard: &mut Guard, server: &Installation, cluster: &Cluster) {
    let program = server.program("postgres").unwrap();
    let data = cluster.data();
    let mut check = |name: &str, value: &str, expected: Option<String>| {
        let data = data.to_string_lossy();
        let set = format!("{name}={value}");
        let ran = guard.run(&program, &["-D", &data, "-C", name, "-c", &set]);
        let shown = ran.ok().map(|ran| ran.tail.trim().to_owned());
        assert_eq!(shown, expected, "{name} = '{value}'");
    };
    // With the file as it was before.
    fs::write(data.join("pgtoll-settings.conf"), "").unwrap();
    for value in
        ["1024", "1GB", "1.5GB", "30.1GB", "2560kB", "0x40 MB", "0100", "1e3", "64 mb", "09"]
    {
        let size = conf::size("max_wal_size", value).ok();
        check("max_wal_size", value, size.map(|size| (size.0 >> 20).to_string()));
    }
    for value in ["300", "5min", "0.5h", "90400ms", " 1d ", "100000000us", "1e2s", "5 minutes"] {
        let time = conf::time("checkpoint_timeout", value).ok();
        check("checkpoint_timeout", value, time.map(|time| time.0.as_secs().to_string()));
    }
    for value in ["16384", "128MB", "1.1GB", "100000kB"] {
        let size = conf::size("shared_buffers", value).ok();
        check("shared_buffers", value, size.map(|size| (size.0 / 8192).to_string()));
    }
    for value in ["on", "TRU", "of", "o", "2", "1", "n", "yess"] {
        let word = |is_on| if is_on { "on" } else { "off" };
        check("full_page_writes", value, conf::boolean(value).map(word).map(str::to_owned));
    }
}
