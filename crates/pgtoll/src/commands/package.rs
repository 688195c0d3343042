//! `pgtoll __package DIR`: the files that go with the program, made from its definitions. Hidden:
//! it is for `cargo xtask dist` and for tests.

use pgtoll_record::Status;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::{Command, CommandFactory as _, ValueEnum as _};
use clap_complete::Shell;
use clap_mangen::Man;
use jiff::Timestamp;
use pgtoll_cluster::ServerPackage;
use roff::{Roff, roman};

use crate::arguments::Arguments;

/// Writes manual pages to `man`, completions to `completions`, the book's page of the command line
/// to `cli.md`, and to `requires` the Python package whose server is the default.
pub(crate) fn run(directory: &Path) -> anyhow::Result<Status> {
    let man = directory.join("man");
    let completions = directory.join("completions");
    for item in [&man, &completions] {
        fs::create_dir_all(item).with_context(|| format!("make {}", item.display()))?;
    }
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Arguments::command(), "pgtoll", &completions)?;
    }
    let date = date()?;
    let mut root = Arguments::command().disable_help_subcommand(true);
    root.build();
    let mut reference = REFERENCE.to_owned();
    for (words, command) in &commands(root) {
        let page = words.join("-") + ".1";
        let text = manual_page(&words.join("-"), command, &date)?;
        fs::write(man.join(&page), text).context("write a manual page")?;
        reference += &chapter(words);
    }
    fs::write(directory.join("cli.md"), reference).context("write cli.md")?;
    let server = ServerPackage::newest()?;
    let requires = format!("{}=={}\n", server.name(), server.version);
    fs::write(directory.join("requires"), requires).context("write requires")?;
    Ok(Status::Done)
}

const REFERENCE: &str = "\
# The command line

What `--help` says of every command. The same is in the manual pages (`man pgtoll-measure`).
";

/// The command and all below it that are not hidden, each with the words that call it.
fn commands(root: Command) -> Vec<(Vec<String>, Command)> {
    let mut found = vec![(vec![root.get_name().to_owned()], root)];
    let mut next = 0;
    while let Some((words, command)) = found.get(next) {
        let visible = command.get_subcommands().filter(|below| !below.is_hide_set());
        let with_words = |below: &Command| {
            ([&words[..], &[below.get_name().to_owned()]].concat(), below.clone())
        };
        let below: Vec<_> = visible.map(with_words).collect();
        next += 1;
        found.splice(next..next, below);
    }
    found
}

/// A page like clap's own, but what stands after the options has a heading and keeps its lines.
fn manual_page(name: &str, command: &Command, date: &str) -> anyhow::Result<Vec<u8>> {
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .date(date)
        .source(concat!("pgtoll ", env!("CARGO_PKG_VERSION")))
        .manual("pgtoll's manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        // "Examples:" and lines, or "Exit status: …".
        let text = after.to_string();
        let (heading, body) = text.split_once(':').unwrap_or(("Notes", &text));
        let mut section = Roff::new();
        section.control("SH", [heading.to_uppercase().as_str()]);
        if let Some(lines) = body.strip_prefix('\n') {
            section.control("nf", []);
            for line in lines.trim_end().lines() {
                section.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
            }
            section.control("fi", []);
        } else {
            section.text([roman(body.trim())]);
        }
        section.to_writer(&mut page)?;
    }
    Ok(page)
}

/// The day on the manual pages: of `SOURCE_DATE_EPOCH`, so that they can be made again the same.
fn date() -> anyhow::Result<String> {
    let epoch = std::env::var("SOURCE_DATE_EPOCH").ok();
    let second = epoch.map(|text| text.parse()).transpose().context("read SOURCE_DATE_EPOCH")?;
    let time = second.map_or_else(|| Ok(Timestamp::now()), Timestamp::from_second)?;
    Ok(time.strftime("%Y-%m-%d").to_string())
}

/// Returns a command's `--help` as a chapter of the book.
fn chapter(words: &[String]) -> String {
    let requested = words.iter().map(String::as_str).chain(["--help"]);
    let help = Arguments::command().term_width(WIDTH).try_get_matches_from(requested);
    let help = help.err().map(|help| help.to_string()).unwrap_or_default();
    let mut text = String::new();
    let _ = write!(text, "\n## {}\n\n```text\n{}\n```\n", words.join(" "), help.trim_end());
    text
}

/// The width of the book's blocks, which also fit beside the table of contents.
const WIDTH: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_a_chapter_with_all_its_options() {
        let mut root = Arguments::command().disable_help_subcommand(true);
        root.build();
        let commands = commands(root);
        let names: Vec<String> = commands.iter().map(|(words, _)| words.join(" ")).collect();
        assert_eq!(names[..2], ["pgtoll", "pgtoll measure"]);
        assert!(names.contains(&"pgtoll postgres list".to_owned()), "{names:?}");
        for (words, command) in &commands {
            let page = manual_page(&words.join("-"), command, "2026-11-22").unwrap();
            let page = String::from_utf8(page).unwrap().replace("\\-", "-");
            let chapter = chapter(words);
            let options = command.get_arguments().filter(|argument| !argument.is_hide_set());
            let longs = options.filter_map(clap::Arg::get_long).map(|long| format!("--{long}"));
            let below = command.get_subcommands().map(|below| below.get_name().to_owned());
            for name in longs.chain(below) {
                assert!(page.contains(&name), "{name} in {page}");
                assert!(chapter.contains(&name), "{name} in {chapter}");
            }
        }
    }

    #[test]
    fn what_follows_the_options_keeps_its_lines() {
        let check = |after: &'static str, expected: &str| {
            let command = Command::new("x").after_help(after);
            let page = manual_page("x", &command, "2026-11-22").unwrap();
            let page = String::from_utf8(page).unwrap();
            assert!(page.ends_with(expected), "{page}");
        };
        let lines = ".SH EXAMPLES\n.nf\nx 1\n  more\n\\*(Aqx\\*(Aq 2\n.fi\n";
        check("Examples:\n  x 1\n    more\n  'x' 2", lines);
        check("Exit status: 0 done.", ".SH \"EXIT STATUS\"\n0 done.\n");
        check("No heading", ".SH NOTES\nNo heading\n");
    }
}
