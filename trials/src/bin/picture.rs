//! Pictures of a record's report, taken with Chromium: `cargo xtask picture`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a developer's tool"
)]

use std::fs;
use std::path::Path;

use pgtoll_testing::chromium::{Browser, Page};

const USAGE: &str = "usage: picture RECORD DIRECTORY [--whole]";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [record, directory] => tops(Path::new(record), Path::new(directory)),
        [record, directory, "--whole"] => whole(Path::new(record), Path::new(directory)),
        _ => eprintln!("{USAGE}"),
    }
}

/// The top of the page by day and by night, as the README shows it.
fn tops(record: &Path, directory: &Path) {
    with_report(record, |browser, file| {
        for scheme in ["light", "dark"] {
            let mut page = loaded(browser, file, 1080, scheme);
            let until = page.evaluate(TOP).as_u64().expect("the first figure has an end");
            let png = page.picture(Some(u32::try_from(until).unwrap()), SCALE);
            save(&directory.join(format!("report-{scheme}.png")), &png);
        }
    });
}

/// So that each file is below 200 kB.
const SCALE: f64 = 0.92;

/// Where the first figure ends. Links cannot be followed in a picture.
const TOP: &str = "(() => {
    document.querySelector('nav').remove();
    return Math.ceil(document.querySelector('figure').getBoundingClientRect().bottom);
})()";

/// All of the page in all its forms, for those who change it.
fn whole(record: &Path, directory: &Path) {
    with_report(record, |browser, file| {
        for (scheme, width) in [("light", 1400), ("light", 360), ("dark", 1400), ("dark", 360)] {
            let mut page = loaded(browser, file, width, scheme);
            let png = page.picture(None, 1.0);
            save(&directory.join(format!("report-{scheme}-{width}.png")), &png);
        }
        let mut page = loaded(browser, file, 1400, "dark");
        page.on_paper("dark");
        save(&directory.join("report.pdf"), &page.print());
    });
}

/// A page that complains, or asks for more than itself, is not shown to anybody.
fn loaded<'a>(browser: &'a mut Browser, file: &Path, width: u32, scheme: &str) -> Page<'a> {
    let mut page = browser.page();
    page.look(width, scheme);
    page.load(file);
    assert_eq!(page.complaints(), Vec::<String>::new());
    assert_eq!(page.requests().len(), 1);
    page
}

fn with_report(record: &Path, look: impl FnOnce(&mut Browser, &Path)) {
    assert!(Browser::is_installed(), "no Chromium: install it, or run `cargo xtask test`");
    let text = fs::read_to_string(record.join("run.jsonl")).expect("there is a record");
    let run = pgtoll_record::Run::parse(&text).expect("it can be read");
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("report.html");
    let html = pgtoll_report::html_report(&run, &pgtoll_estimate::summarise(&run));
    fs::write(&file, html).unwrap();
    look(&mut Browser::start(scratch.path()), &file);
}

fn save(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    eprintln!("{}: {} kB", path.display(), bytes.len() / 1000);
}
