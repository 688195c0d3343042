//! Invariants of the sources, which no lint of the compiler holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Every source file of a crate with its text, without the unit tests at its end.
pub(crate) fn sources(name: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let mut found = Vec::new();
    let mut directories = vec![root];
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") && !is_test {
                let text = fs::read_to_string(&path).unwrap();
                let text = text.split("\n#[cfg(test)]\n").next().unwrap_or_default();
                found.push((path.clone(), text.to_owned()));
            }
        }
    }
    assert!(!found.is_empty(), "no sources of {name}");
    found
}

/// Every crate below `crates`.
pub(crate) fn crates() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap());
    let directories = entries.filter(|entry| entry.path().is_dir());
    directories.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Lines of code, not comments, that contain one of these, as `file:line: text`.
fn lines_with(sources: &[(PathBuf, String)], words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources {
        for (number, line) in (1..).zip(text.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            if words.iter().any(|word| code.contains(word)) {
                found.push(format!("{}:{number}: {}", path.display(), line.trim()));
            }
        }
    }
    found
}

#[test]
fn pure_crates_do_no_io() {
    const IO: [&str; 8] = [
        "std::fs",
        "std::net",
        "std::process",
        "std::env",
        "std::thread",
        "SystemTime::now",
        "Instant::now",
        "io::stdout",
    ];
    for name in ["checksum", "stats", "format", "model", "record", "estimate", "report"] {
        let found = lines_with(&sources(&format!("pgtoll-{name}")), &IO);
        assert_eq!(found, [""; 0]);
    }
}

#[test]
fn versions_differ_in_the_table_only() {
    const COMPARISONS: [&str; 8] = [
        "major >= ",
        "major > ",
        "major < ",
        "major <= ",
        "major() >= ",
        "major() > ",
        "major() < ",
        "major() <= ",
    ];
    for name in crates() {
        let mut found = lines_with(&sources(&name), &COMPARISONS);
        found.retain(|line| !line.contains("pgtoll-format/src/version.rs:"));
        assert_eq!(found, [""; 0]);
    }
}

/// Only `alter` opens a user's data directory for writing. The files that write elsewhere are named
/// here, each with what it writes.
#[test]
fn only_alter_writes_to_data_directories() {
    const WRITING: [&str; 7] = [
        ".write(true)",
        ".append(true)",
        "File::create",
        "fs::write",
        "write_all_at",
        "set_len",
        "fs::rename",
    ];
    const ELSEWHERE: [&str; 15] = [
        // Its own directories, control groups, counters of the kernel.
        "pgtoll-cluster/src/guard/child/mod.rs:",
        "pgtoll-cluster/src/leftover.rs:",
        "pgtoll-cluster/src/memory.rs:",
        "pgtoll-cluster/src/profiler.rs:",
        "pgtoll-cluster/src/install.rs:",
        // A new file for a loop device, in a directory of its own below `/run`.
        "pgtoll-cluster/src/volume/mod.rs:",
        // A new file, to time its syncs.
        "pgtoll-observe/src/sync.rs:",
        // A file in memory, to time the writes of WAL.
        "pgtoll-predict/src/timing.rs:",
        // The catalogs of a tar, in a temporary directory.
        "pgtoll-verify/src/backup/catalogs.rs:",
        // Journals in a directory of its own, made anew; a history in a new file.
        "pgtoll-lab/src/judge/journal/write.rs:",
        "pgtoll-lab/src/judge/events.rs:",
        "pgtoll-lab/src/judge/history.rs:",
        // A backup's copy, in the guard's directory, as the servers' user.
        "pgtoll-drill/src/writer.rs:",
        // Manual pages.
        "pgtoll/src/commands/package.rs:",
        // The one way to write files of pgtoll's own: `Draft` and its relatives.
        "pgtoll-system/src/draft.rs:",
    ];
    for name in crates().iter().filter(|name| *name != "pgtoll-alter") {
        let mut found = lines_with(&sources(name), &WRITING);
        found.retain(|line| !ELSEWHERE.iter().any(|place| line.contains(place)));
        assert_eq!(found, [""; 0]);
    }
}

/// A type's name stands in one crate, so that a search for it finds it. The exceptions are named
/// here, each with the reason why both keep it.
#[test]
fn a_types_name_stands_in_one_crate() {
    const TWICE: [&str; 10] = [
        // A number that may be random, and a limit of a claim: neither leaves its crate.
        "Bound",
        // Of a script in pgbench's language, and of pgtoll's command line: private to both.
        "Command",
        // The last line of a record, whose JSON says so, and why WAL is not read further.
        "End",
        // In an experiment's file, and in the simulations that test an estimator.
        "Experiment",
        // What a control group reports, and its form in a record.
        "MemoryUse",
        // What a profiler counted, and its form in a record.
        "Profile",
        // A run that goes on, and one that is read from its record.
        "Run",
        // A server that bears load, and its form in a record.
        "Server",
        // A mistake on the command line, and the resources that a program took.
        "Usage",
        // The server's verdict on a page, and a comparison's in a record.
        "Verdict",
    ];
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in crates() {
        for (_, text) in sources(&name) {
            for line in text.lines() {
                let words: Vec<&str> = line.split([' ', '<', '(', '{', ';', ':']).collect();
                if let ["pub", "struct" | "enum" | "trait" | "type", item, ..]
                | ["pub", "crate)", "struct" | "enum" | "trait" | "type", item, ..] =
                    words.as_slice()
                {
                    found.entry((*item).to_owned()).or_default().insert(name.clone());
                }
            }
        }
    }
    found.retain(|item, crates| crates.len() > 1 && !TWICE.contains(&item.as_str()));
    assert_eq!(found, BTreeMap::new());
}

/// Errors with advice, by name: which of them the binary asks, and which of them pass on the advice
/// of an error that they show as their own.
#[test]
fn no_hint_is_lost() {
    let sources: Vec<_> = crates().iter().flat_map(|name| sources(name)).collect();
    let listed =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join("hints.rs"));
    let listed = listed.unwrap();
    let mut hints = BTreeMap::new();
    for (_, text) in &sources {
        for body in text.split("\nimpl ").skip(1) {
            let (name, body) = body.split_once(' ').unwrap();
            let body = body.split("\n}\n").next().unwrap();
            if name.ends_with("Error") && body.contains("pub fn hint(&self) -> Option<String>") {
                hints.insert(name.to_owned(), body.to_owned());
            }
        }
    }
    assert!(hints.len() > 30, "{} errors have hints", hints.len());
    let mut lost: Vec<String> = hints
        .keys()
        .filter(|name| !listed.contains(&format!("::{name},")))
        .map(|name| format!("{name} is missing in hints.rs"))
        .collect();
    for (path, text) in &sources {
        for (name, variant, inner) in shown_as_own(text) {
            let passes =
                hints.get(name).is_some_and(|body| body.contains(&format!("Self::{variant}(")));
            if name.ends_with("Error") && hints.contains_key(inner) && !passes {
                lost.push(format!("{}: {name}::{variant} loses {inner}'s", path.display()));
            }
        }
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

/// Enum, variant and inner type's name of each `#[error(transparent)]`.
fn shown_as_own(text: &str) -> Vec<(&str, &str, &str)> {
    let mut found = Vec::new();
    for body in text.split("pub enum ").skip(1) {
        let body = body.split("\n}\n").next().unwrap();
        let name = body.split(' ').next().unwrap();
        for variant in body.split("#[error(transparent)]").skip(1) {
            let (variant, inner) = variant.trim_start().split_once('(').unwrap();
            let inner = inner.split(')').next().unwrap().rsplit([' ', ':', '<']).next().unwrap();
            found.push((name, variant, inner.trim_end_matches('>')));
        }
    }
    found
}

/// A function takes values, or a type that names them: never a tuple that it takes apart.
#[test]
fn no_parameter_is_a_tuple_taken_apart() {
    let sources: Vec<_> = crates().iter().flat_map(|name| sources(name)).collect();
    let packed = |line: &str| {
        let line = line.trim_start();
        let line = line
            .split_once("fn ")
            .and_then(|(_, rest)| rest.split_once('('))
            .map_or(line, |(_, rest)| rest);
        line.starts_with('(') && line.contains("): (") && !line.contains('|')
    };
    assert!(packed("    (server, postmaster): (&Cluster, i32),"));
    assert!(packed("fn kill((server, postmaster): (&Cluster, i32)) {"));
    let mut found = Vec::new();
    for (path, text) in &sources {
        let lines = (1..).zip(text.lines()).filter(|(_, line)| packed(line));
        found.extend(lines.map(|(number, line)| format!("{}:{number}:{line}", path.display())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
