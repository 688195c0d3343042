//! Any bytes as a plan, and any text as the SQL of a log: a plan that is read is written again as it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_replay::{CapturedWorkload, LogInput, LogReading, ReplaySettings, read_logs, replay_record};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(workload) = CapturedWorkload::read(bytes) {
        let mut written = Vec::new();
        workload.write(&mut written).expect("memory takes every byte");
        assert_eq!(CapturedWorkload::read(&written[..]).expect("it was just written"), workload);
    }
    // As a simple query, and as statements of the extended protocol.
    let sql: String = String::from_utf8_lossy(bytes).replace(['\n', '\0'], "\n\t");
    let at = "2026-11-21 19:46:17.796 UTC [7] LOG:  ";
    let text = format!("{at}statement: {sql}\n{at}duration: 0.100 ms\n{at}execute p: {sql}\n");
    let input = LogInput { name: "log".to_owned(), content: Box::new(text.as_bytes()) };
    if let Ok(workload) = read_logs([input], &LogReading::default(), |_| {}) {
        let provenance = pgtoll_record::Provenance {
            version: String::new(),
            command: Vec::new(),
            made: String::new(),
        };
        let settings = ReplaySettings::default();
        let _ = replay_record(provenance, &workload, &settings, None);
    }
});
