//! Plain words: identifiers, messages and comments that a reader would have to read twice are refused.

use std::fs;
use std::path::Path;

use anyhow::bail;

use crate::{command, output, root, say};

/// Names that name nothing, as variables, parameters or functions.
const IDENTIFIERS: [&str; 6] = ["of", "it", "what", "told", "asked", "said"];

/// Words of a private dialect, in strings of the product and in its documentation.
const PHRASES: [&str; 17] = [
    "anew",
    "whoever",
    "whatever else",
    "so many",
    "goes on",
    "go on",
    "is none",
    "are none",
    "there is nothing",
    "comes to be",
    "come to be",
    "of which it has",
    "in vain",
    "is not told",
    "cannot tell",
    "stands in",
    "1 pages",
];

/// Words of a private dialect that comments lack, too.
const COMMENT_PHRASES: [&str; 5] = ["anew", "goes on", "go on", "so many", "in vain"];

/// Words of a sentence in the help at most.
const HELP_WORDS: usize = 25;

/// Words of the book that are written by hand, tables and commands included.
const BOOK_WORDS: usize = 60_000;

/// First words of doc comments that ask instead of stating.
const QUESTIONS: [&str; 5] = ["What", "Who", "Where", "Which", "Of"];

/// Fails if a file has a refused word.
pub(crate) fn check() -> anyhow::Result<()> {
    let found = found()?;
    for line in &found {
        say(&format!("words: {line}"));
    }
    if !found.is_empty() {
        bail!("{} files have refused words", found.len());
    }
    let words = book_words()?;
    if words > BOOK_WORDS {
        bail!("the book has {words} words by hand: {BOOK_WORDS} are the most");
    }
    say(&format!("xtask: words: none refused; the book has {words} by hand"));
    Ok(())
}

/// The rule, the number of words and the file, a line each.
fn found() -> anyhow::Result<Vec<String>> {
    let listed = output(command("git").args(["ls-files", "*.rs", "docs/src/*.md", "README.md"]))?;
    let mut lines = Vec::new();
    for path in listed.lines().filter(|path| !path.starts_with("fuzz/")) {
        let Ok(text) = fs::read_to_string(root().join(path)) else { continue };
        let found = if Path::new(path).extension().is_some_and(|ending| ending == "rs") {
            let mut counts = rust_words(&text, is_product(path));
            if path.starts_with("crates/pgtoll/src/arguments/") {
                counts.push(("long sentence", long_sentences(&text)));
            }
            counts
        } else {
            vec![("phrase", phrases(&prose(&text), &PHRASES))]
        };
        for (rule, count) in found.into_iter().filter(|(_, count)| *count > 0) {
            lines.push(format!("{rule} {count} {path}"));
        }
    }
    Ok(lines)
}

/// Words of the book without what is generated.
fn book_words() -> anyhow::Result<usize> {
    const GENERATED: [&str; 4] = ["cli.md", "fields.md", "findings.md", "managed.md"];
    let listed = output(command("git").args(["ls-files", "docs/src/*.md"]))?;
    let by_hand = listed.lines().filter(|path| !GENERATED.iter().any(|name| path.ends_with(name)));
    let mut words = 0;
    for path in by_hand {
        let Ok(text) = fs::read_to_string(root().join(path)) else { continue };
        words += without_generated(&text).split_whitespace().count();
    }
    Ok(words)
}

/// A page without its blocks between `<!-- NAME … -->` and `<!-- /NAME -->`.
fn without_generated(page: &str) -> String {
    let mut kept = String::new();
    let mut rest = page;
    while let Some((before, tail)) = rest.split_once("<!-- ") {
        kept.push_str(before);
        let name = tail.split([' ', '\n']).next().unwrap_or_default();
        let end = format!("<!-- /{name} -->");
        rest = tail.split_once(&end).map_or("", |(_, after)| after);
    }
    kept + rest
}

/// Sentences of doc comments that are too long for a terminal's help.
fn long_sentences(text: &str) -> usize {
    let mut paragraph = String::new();
    let mut found = 0;
    for line in text.lines().chain([""]) {
        if let Some(words) = line.trim_start().strip_prefix("/// ") {
            paragraph.push_str(words);
            paragraph.push(' ');
        } else {
            let is_long = |sentence: &&str| sentence.split_whitespace().count() > HELP_WORDS;
            found += paragraph.split(". ").filter(is_long).count();
            paragraph.clear();
        }
    }
    found
}

/// Heads of modules that ask instead of stating.
fn module_questions(text: &str) -> usize {
    let head = text.strip_prefix("//! ").and_then(|head| head.split(' ').next());
    usize::from(head.is_some_and(|first| first == "How" || QUESTIONS.contains(&first)))
}

/// Strings of tests and of developers' tools are read by few.
fn is_product(path: &str) -> bool {
    path.starts_with("crates/")
        && !path.contains("/tests/")
        && !path.ends_with("tests.rs")
        && !path.starts_with("crates/pgtoll-testing/")
}

/// Numbers of refused words by rule in a file of Rust.
fn rust_words(text: &str, is_product: bool) -> Vec<(&'static str, usize)> {
    let pieces = pieces(text);
    let code = |piece: &&Piece<'_>| matches!(piece, Piece::Code(_));
    let identifiers = pieces.iter().filter(code).map(|piece| bindings(piece.text())).sum();
    let product = text.split("\n#[cfg(test)]\n").next().unwrap_or_default();
    let mut counts = vec![("identifier", identifiers)];
    if is_product {
        let strings = self::pieces(product);
        let strings = strings.iter().filter(|piece| matches!(piece, Piece::String(_)));
        counts.push(("phrase", strings.map(|piece| phrases(piece.text(), &PHRASES)).sum()));
        let comments = pieces.iter().filter(|piece| matches!(piece, Piece::Comment(_)));
        let count = |piece: &Piece<'_>| phrases(piece.text(), &COMMENT_PHRASES);
        counts.push(("comment", comments.map(count).sum()));
        counts.push(("question", questions(product) + module_questions(product)));
    }
    counts
}

/// A stretch of a file.
enum Piece<'a> {
    Code(&'a str),
    String(&'a str),
    Comment(&'a str),
}

impl<'a> Piece<'a> {
    fn text(&self) -> &'a str {
        let (Self::Code(text) | Self::String(text) | Self::Comment(text)) = self;
        text
    }
}

/// Code, strings and comments of a file, in their order. Raw strings with quotes in them end early, which moves no
/// word from one kind to another that matters here.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let comment = rest.find("//").unwrap_or(rest.len());
        let quote = quote_at(rest).unwrap_or(rest.len());
        let begin = comment.min(quote);
        pieces.push(Piece::Code(&rest[..begin]));
        rest = &rest[begin..];
        if rest.is_empty() {
            break;
        }
        let (length, is_comment) = if comment < quote {
            (rest.find('\n').unwrap_or(rest.len()), true)
        } else {
            (string_length(rest), false)
        };
        let piece = &rest[..length];
        pieces.push(if is_comment { Piece::Comment(piece) } else { Piece::String(piece) });
        rest = &rest[length..];
    }
    pieces
}

/// The first quotation mark that begins a string: `'"'` is a character.
fn quote_at(text: &str) -> Option<usize> {
    let is_character = |at: usize| text[..at].ends_with('\'') || text[..at].ends_with("'\\");
    text.match_indices('"').map(|(at, _)| at).find(|at| !is_character(*at))
}

fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = character == '\\' && !is_escaped,
        }
    }
    text.len()
}

/// Refused identifiers that are bound: `let of`, `|of|`, `of:`, `fn of`.
fn bindings(code: &str) -> usize {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut count = 0;
    for (at, _) in code.match_indices(|character: char| character.is_alphabetic()) {
        if code[..at].ends_with(is_word) {
            continue;
        }
        let word = code[at..].split(|character| !is_word(character)).next().unwrap_or_default();
        if IDENTIFIERS.contains(&word) {
            let before = code[..at].trim_end();
            let after = code[at + word.len()..].trim_start();
            let is_typed = after.starts_with(':') && !after.starts_with("::");
            let is_bound = (!before.ends_with('(') || is_typed)
                && ["let", "mut", "fn", "|", "for", "("].iter().any(|end| before.ends_with(end));
            count += usize::from(is_bound);
        }
    }
    count
}

/// A page without its fenced blocks: outputs and options have their words from elsewhere.
fn prose(page: &str) -> String {
    page.split("```").step_by(2).collect::<Vec<_>>().join(" ")
}

fn phrases(text: &str, refused: &[&str]) -> usize {
    let text = text.split_whitespace().filter(|word| *word != "\\").collect::<Vec<_>>().join(" ");
    let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    let count = |phrase: &&str| -> usize {
        let is_whole = |at: &usize| {
            let end = at + phrase.len();
            !is_letter(text[..*at].chars().next_back()) && !is_letter(text[end..].chars().next())
        };
        text.match_indices(*phrase).filter(|(at, _)| is_whole(at)).count()
    };
    refused.iter().map(count).sum()
}

/// First lines of doc comments that begin with a question's word.
fn questions(text: &str) -> usize {
    let mut is_inside = false;
    let mut count = 0;
    for line in text.lines() {
        let comment = line.trim_start().strip_prefix("/// ");
        if let Some(comment) = comment.filter(|_| !is_inside) {
            let word = comment.split([' ', ',', '.']).next().unwrap_or_default();
            count += usize::from(QUESTIONS.contains(&word));
        }
        is_inside = line.trim_start().starts_with("///");
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANTED: &str = "/// What it is.\nfn of(told: u32) {\n    // of which, anew\n    \
        all.map(|of| of + 1);\n    let said = \"it goes on anew\";\n    let quote = '\"';\n    let fine = 1;\n}\n";

    #[test]
    fn planted_words_are_found() {
        let found = rust_words(PLANTED, true);
        assert_eq!(found, [("identifier", 5), ("phrase", 2), ("comment", 1), ("question", 1)]);
        assert_eq!(phrases(&prose("anew\n```text\nanew\n```\n"), &PHRASES), 1);
        assert_eq!(phrases("canew, somebody goes\non; 21 pages", &PHRASES), 1);
        assert_eq!(module_questions("//! How it is done.\n"), 1);
        let long = format!("    /// Short. {}.\n    /// More.\n", "word ".repeat(HELP_WORDS + 1));
        assert_eq!(long_sentences(&long), 1);
        assert_eq!(long_sentences("/// One of a few words. Another one.\n"), 0);
        let page = "by hand\n<!-- report x -->\ngenerated words\n<!-- /report -->\nagain";
        assert_eq!(without_generated(page).split_whitespace().count(), 3);
    }
}
