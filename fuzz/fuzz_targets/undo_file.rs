//! Any text as an undo file of `corrupt` or `repair`, and as one of a file that was moved.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use pgtoll_alter::fuzzed::{repair_undo_file, undo_file};

fuzz_target!(|input: (&str, &str, u64)| {
    let (text, changes, length) = input;
    let _ = undo_file(text.as_bytes());
    let _ = repair_undo_file(text.as_bytes());
    let form = |moved: &str, after: &str, changes: &str| {
        format!(
            "{{\"schema\":\"pgtoll.undo/1\",\"file\":\"/data/base/5/1259\",\"length\":{length},\
             \"length_after\":{after},\"moved_to\":{moved},\"changes\":[{changes}]}}"
        )
    };
    let _ = undo_file(form("null", &length.to_string(), changes).as_bytes());
    // Only the name that `corrupt` gives is accepted for a file that it moves.
    let quoted = format!("{text:?}");
    if undo_file(form(&quoted, "null", "").as_bytes()) {
        assert_eq!(Path::new(text), Path::new("/data/base/5/1259.pgtoll-moved"));
    }
});
