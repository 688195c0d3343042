//! Text that people copy and terminals show: shell words, and characters that terminals obey.

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
    format!("'{}'", word.replace('\'', "'\\''"))
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
    use super::*;

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
