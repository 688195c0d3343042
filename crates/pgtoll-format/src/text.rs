//! Text that people copy and terminals show: shell words, hexadecimal, and characters that terminals
//! obey.

use std::fmt::Write as _;

/// A word as a POSIX shell reads it: plain where that is the same word, else in quotes. Characters
/// that a terminal would obey become escapes (`$'\033'`), which POSIX has since 2024 and Bash much
/// longer.
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=@,:+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if word.contains(is_unprintable) {
        let escaped = word.chars().map(|c| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if is_unprintable(c) => octal(c),
            c => c.to_string(),
        });
        return format!("$'{}'", escaped.collect::<String>());
    }
    single_quoted(word)
}

/// A word in single quotes, which every POSIX shell reads: for commands that are run.
pub fn single_quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Bytes in lower-case hexadecimal, two digits each.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of hexadecimal digits, in either case; `None` of anything else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16)?).ok();
    let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

/// `\342\200\256`
fn octal(c: char) -> String {
    c.encode_utf8(&mut [0; 4]).bytes().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "\\{byte:03o}");
        text
    })
}

/// Control characters, and the format characters that reorder text, are invisible, or break lines.
/// What joins letters (U+200C, U+200D) is among them; variation selectors, which only choose a
/// letter's form, are not.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hexadecimal_comes_back(bytes: Vec<u8>, text in "[0-9a-fA-Fx]*") {
            prop_assert_eq!(unhex(&hex(&bytes)), Some(bytes));
            if let Some(bytes) = unhex(&text) {
                prop_assert_eq!(hex(&bytes), text.to_lowercase());
            }
        }
    }

    #[test]
    fn shells_read_back_the_word() {
        let check = |word: &str, quoted: &str| assert_eq!(shell_quoted(word), quoted);
        check("/srv/pg-15.data", "/srv/pg-15.data");
        check("", "''");
        check("my data", "'my data'");
        check("it's", r"'it'\''s'");
        check("$HOME", "'$HOME'");
        check("a\u{1b}'\\\u{202e}", r"$'a\033\'\\\342\200\256'");
    }
}
