//! Text that a terminal shows and does not obey.
//!
//! Names of relations, paths, messages of servers and strings of records come from others. Control
//! characters in them move the cursor, change colours or titles; Unicode's directional and invisible
//! format characters make text read as what it is not.

use std::borrow::Cow;
use std::fmt::Write as _;

pub use pgtoll_format::is_unprintable;

/// `text` for one line: control characters, line breaks and tabs included, and the characters that
/// reorder or hide text are written as escapes.
///
/// ```
/// use pgtoll_report::printable;
///
/// assert_eq!(printable("orders"), "orders");
/// assert_eq!(printable("\u{1b}[31m\n"), r"\u{1b}[31m\n");
/// assert_eq!(printable("a\u{202e}b"), r"a\u{202e}b");
/// ```
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_unprintable, write_escape)
}

/// `text` of several lines: as [`printable`], but tabs and line breaks (`\n` and `\r\n`) stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let is_unprintable = |c| is_unprintable(c) && !matches!(c, '\n' | '\t');
    let lines = |text| escaped(text, is_unprintable, write_escape);
    if !text.contains("\r\n") {
        return lines(text);
    }
    text.split("\r\n").map(lines).collect::<Vec<_>>().join("\r\n").into()
}

/// JSON that means the same, with such characters as JSON's own escapes. JSON has them nowhere but
/// in its strings, line feeds apart.
///
/// ```
/// assert_eq!(pgtoll_report::printable_json("\"\u{7f}\u{e0041}\""), r#""\u007f\udb40\udc41""#);
/// ```
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_unprintable = |c| is_unprintable(c) && !matches!(c, '\n' | '\r' | '\t');
    escaped(json, is_unprintable, |escaped, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    })
}

fn write_escape(escaped: &mut String, c: char) {
    escaped.extend(c.escape_default());
}

fn escaped(
    text: &str,
    is_escaped: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    let Some(first) = text.find(&is_escaped) else { return Cow::Borrowed(text) };
    let (plain, rest) = text.split_at(first);
    let mut escaped = String::with_capacity(text.len() + 16);
    escaped.push_str(plain);
    for c in rest.chars() {
        if is_escaped(c) { escape(&mut escaped, c) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn letters_of_all_scripts_stay() {
        for text in ["Größe", "表", "κ ± 1", "🙂\u{fe0f}", "a\u{a0}b", ""] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn what_terminals_obey_is_escaped() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected);
        check("\u{1b}]0;t\u{7}", r"\u{1b}]0;t\u{7}");
        check("a\u{9b}31mb\u{7f}", r"a\u{9b}31mb\u{7f}");
        check("a\tb\r\nc", r"a\tb\r\nc");
        check(
            "\u{2066}x\u{2069}\u{200b}\u{feff}\u{61c}",
            r"\u{2066}x\u{2069}\u{200b}\u{feff}\u{61c}",
        );
        check("\u{2028}\u{e0041}", r"\u{2028}\u{e0041}");
        assert_eq!(printable_lines("a\tb\n\u{1b}c\r"), "a\tb\n\\u{1b}c\\r");
        assert_eq!(printable_lines("a\r\nb\rc\r\n"), "a\r\nb\\rc\r\n");
    }

    proptest! {
        #[test]
        fn nothing_unprintable_is_left(text in any::<String>()) {
            prop_assert!(!printable(&text).contains(is_unprintable));
            let lines = printable_lines(&text);
            let is_left = |c| is_unprintable(c) && c != '\n' && c != '\t';
            prop_assert!(!lines.replace("\r\n", "\n").contains(is_left));
            prop_assert_eq!(lines.matches('\n').count(), text.matches('\n').count());
        }

        #[test]
        fn json_means_the_same(text in any::<String>()) {
            let json = serde_json::to_string_pretty(&[&text]).unwrap();
            let printed = printable_json(&json);
            prop_assert!(!printed.contains(|c| is_unprintable(c) && c != '\n'));
            let [read]: [String; 1] = serde_json::from_str(&printed).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
