//! Any text as a connection string, and texts with a password planted in them: what is shown of them
//! has no password.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_wire::{Dsn, DsnError, Environment};

fuzz_target!(|input: (u8, &str, &str)| {
    let (form, before, after) = input;
    // A file of services may be any file, a device too.
    if before.contains("service") || after.contains("service") {
        return;
    }
    let environment = Environment { user: Some("alice".to_owned()), ..Environment::default() };
    let read = |text: &str| Dsn::parse_in(text, &environment);
    for text in [before, &format!("{before}{after}"), &format!("postgresql://{before}")] {
        if let Ok(dsn) = read(text) {
            let again = read(&dsn.redacted()).expect("what is shown can be read");
            assert_eq!(again.redacted(), dsn.redacted());
        }
    }
    // What comes before may make anything of the rest, as a quote that is not closed.
    let planted = match form % 8 {
        0 => format!("password={SECRET} {after}"),
        1 => format!("host=h password='{SECRET}' {after}"),
        2 => format!("host=h password = {SECRET}{after}"),
        3 => format!("postgresql://u:{SECRET}@{after}"),
        4 => format!("postgresql://u:{SECRET}@h/d?{after}"),
        5 => format!("postgresql://h/d?password={SECRET}&{after}"),
        6 => format!("host=h passwrd={SECRET} {after}"),
        _ => format!("{before} password={SECRET} {after}"),
    };
    match read(&planted) {
        // With more before or behind it, it may be part of another value.
        Ok(dsn) if matches!(form % 8, 0..=2 | 4) => hides(&format!("{dsn} {dsn:?}"), &planted),
        Ok(_) | Err(DsnError::UnknownService { .. } | DsnError::File { .. }) => {}
        Err(error) => hides(&format!("{error} {error:?} {:?}", error.hint()), &planted),
    }
});

fn hides(shown: &str, text: &str) {
    assert!(!shown.contains(SECRET), "{text:?} is shown as {shown}");
}

/// No keyword, and nothing that a fuzzer writes by chance.
const SECRET: &str = "S3sameS3crEt";
