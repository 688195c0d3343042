//! Any text as a resume file of `verify`, and as findings in one.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_verify::fuzzed::resume_file;

fuzz_target!(|input: (u8, &str)| {
    let (kind, text) = input;
    let _ = resume_file(text.as_bytes());
    let (findings, firsts) = if kind % 2 == 0 { (text, "") } else { ("", text) };
    let file = format!(
        "{{\"schema\":\"pgtoll.resume/1\",\"pgtoll\":\"0.1.0\",\"of\":{{\"system_identifier\":1,\
         \"checkpoint\":\"0/1\",\"state\":\"\",\"checksum_version\":1,\"backup_start\":null,\
         \"fingerprint\":1,\"files\":1,\"bytes\":1}},\"to\":{{\"file\":0,\"at\":0}},\
         \"pages\":{{\"bytes\":0,\"blocks\":0,\"new\":0}},\"counts\":[],\
         \"findings\":[{findings}],\"firsts\":[{firsts}]}}"
    );
    let _ = resume_file(file.as_bytes());
});
