//! Any bytes as what a client and a server say in turn: cut into pieces it comes to the same steps.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_replay::examine_messages;

fuzz_target!(|input: (u8, Vec<(bool, &[u8])>)| {
    let (length, turns) = input;
    let whole = examine_messages(turns.iter().copied());
    let length = usize::from(length).max(1);
    let cut = turns
        .iter()
        .flat_map(|(is_client, bytes)| bytes.chunks(length).map(move |piece| (*is_client, piece)));
    assert_eq!(examine_messages(cut), whole);
    let bytes: usize = turns.iter().map(|(_, bytes)| bytes.len()).sum();
    // A message has five bytes at least.
    assert!(whole.0 <= bytes / 5);
});
