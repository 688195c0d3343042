//! `postgresql.conf`: its syntax, as the server reads it (`guc-file.l`), and what values mean
//! (`parse_int`, `parse_real` and `parse_bool` of the server). Includes are reported; the one who reads
//! files follows them.
//!
//! ```
//! use pgtoll_format::conf;
//!
//! let file = conf::parse("max_wal_size = 4096  # four times the default\ninclude 'more.conf'\n");
//! let conf::Entry::Setting { name, value } = &file.entries[0] else { panic!() };
//! assert_eq!(conf::size(name, value)?.to_string(), "4GB");
//! assert!(matches!(&file.entries[1], conf::Entry::Include { .. }));
//! # Ok::<(), pgtoll_format::UnitError>(())
//! ```

use crate::units::{ByteSize, SIZE_UNITS, TIME_UNITS, TimeSpan, UnitError, in_base_units, real};
use crate::wal::Compression;

/// A configuration file: its entries in their order, of which the last of a name is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfFile {
    /// Settings and includes.
    pub entries: Vec<Entry>,
    /// Lines that the server refuses. With one of them it does not start, and reloads nothing.
    pub errors: Vec<ConfSyntaxError>,
}

/// A line of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A setting.
    Setting {
        /// Its name in lower case, since case has no meaning in it.
        name: String,
        /// Its value without quotes and escapes.
        value: String,
    },
    /// `include` or `include_if_exists`: another file is read here.
    Include {
        /// Relative to the directory of the file that has this line.
        path: String,
        /// The file may be missing (`include_if_exists`).
        may_be_missing: bool,
    },
    /// `include_dir`: all files of a directory whose names end in `.conf` are read here.
    IncludeDirectory {
        /// Relative to the directory of the file that has this line.
        path: String,
    },
}

/// A line that is not `name = value`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("syntax error in line {line}, near {near}")]
pub struct ConfSyntaxError {
    /// The line's number, from 1.
    pub line: usize,
    /// The token that does not fit, in quotes, or `end of line`.
    pub near: String,
}

/// Reads a configuration file.
pub fn parse(text: &str) -> ConfFile {
    let mut file = ConfFile::default();
    for (number, line) in (1..).zip(text.split('\n')) {
        match entry(line) {
            Ok(entry) => file.entries.extend(entry),
            Err(near) => file.errors.push(ConfSyntaxError { line: number, near }),
        }
    }
    file
}

/// A line that sets this value, whatever characters but line breaks and NUL are in it.
pub fn line(name: &str, value: &str) -> String {
    format!("{name} = '{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// The size that a setting's value stands for. A plain number has the setting's own unit: the 1024
/// of `max_wal_size = 1024` are megabytes. Fractions are rounded as the server rounds them.
pub fn size(name: &str, value: &str) -> Result<ByteSize, UnitError> {
    let base = SIZES.iter().find(|(setting, _)| *setting == name).map(|(_, bytes)| *bytes);
    in_base_units(value, &SIZE_UNITS, base, "a size like 64MB (units: B, kB, MB, GB, TB)")
        .map(ByteSize)
}

/// The time that a setting's value stands for. A plain number has the setting's own unit: the 300 of
/// `checkpoint_timeout = 300` are seconds.
pub fn time(name: &str, value: &str) -> Result<TimeSpan, UnitError> {
    let base = TIMES.iter().find(|(setting, _)| *setting == name).map(|(_, us)| *us);
    in_base_units(value, &TIME_UNITS, base, "a time like 90s (units: us, ms, s, min, h, d)")
        .map(|us| TimeSpan(std::time::Duration::from_micros(us)))
}

/// Base units of sizes in bytes (`unit` of `pg_settings`, with blocks of 8 kB).
const SIZES: [(&str, u64); 3] =
    [("max_wal_size", 1 << 20), ("min_wal_size", 1 << 20), ("shared_buffers", 8192)];
/// Base units of times in microseconds.
const TIMES: [(&str, u64); 1] = [("checkpoint_timeout", 1_000_000)];

/// A share from 0 to 1, like `checkpoint_completion_target`.
pub fn ratio(value: &str) -> Option<f64> {
    let (ratio, rest) = real(value.trim_start())?;
    (rest.trim().is_empty() && (0.0..=1.0).contains(&ratio)).then_some(ratio)
}

/// `on`, `off`, `true`, `false`, `yes`, `no`, unique beginnings of these, `1` and `0`.
pub fn boolean(value: &str) -> Option<bool> {
    const WORDS: [(&str, usize, bool); 8] = [
        ("true", 1, true),
        ("false", 1, false),
        ("yes", 1, true),
        ("no", 1, false),
        ("on", 2, true),
        ("off", 2, false),
        ("1", 1, true),
        ("0", 1, false),
    ];
    let value = value.to_ascii_lowercase();
    let is = |word: &&(&str, usize, bool)| word.0.starts_with(&value) && value.len() >= word.1;
    WORDS.iter().find(is).map(|(_, _, is_on)| *is_on)
}

/// `wal_compression`: an algorithm, or a boolean (`on` is pglz); `Some(None)`: off, `None`: not a
/// value of this setting.
pub fn wal_compression(value: &str) -> Option<Option<Compression>> {
    let named = Compression::ALL.into_iter().find(|item| item.name().eq_ignore_ascii_case(value));
    named.map_or_else(
        || boolean(value).map(|is_on| is_on.then_some(Compression::Pglz)),
        |item| Some(Some(item)),
    )
}

/// Parses a line; the error is the token that does not fit.
fn entry(line: &str) -> Result<Option<Entry>, String> {
    let mut tokens = Tokens { rest: line };
    let name = match tokens.next() {
        None => return Ok(None),
        Some(Token { kind: Kind::Name, text }) => text.to_ascii_lowercase(),
        Some(other) => return Err(other.quoted()),
    };
    let equals = tokens.next();
    let value = match equals {
        Some(Token { kind: Kind::Equals, .. }) => tokens.next(),
        other => other,
    };
    let value = match value {
        None => return Err("end of line".to_owned()),
        Some(Token { kind: Kind::String, text }) => unescaped(text),
        Some(token) if token.is_value() => token.text.to_owned(),
        Some(other) => return Err(other.quoted()),
    };
    if let Some(other) = tokens.next() {
        return Err(other.quoted());
    }
    Ok(Some(match name.as_str() {
        "include" => Entry::Include { path: value, may_be_missing: false },
        "include_if_exists" => Entry::Include { path: value, may_be_missing: true },
        "include_dir" => Entry::IncludeDirectory { path: value },
        _ => Entry::Setting { name, value },
    }))
}

/// A token of the server's scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `GUC_ID` and `GUC_QUALIFIED_ID`.
    Name,
    Equals,
    String,
    /// `GUC_UNQUOTED_STRING`, `GUC_INTEGER` and `GUC_REAL`.
    Unquoted,
    Error,
}

impl Token<'_> {
    fn quoted(&self) -> String {
        format!("\"{}\"", self.text)
    }

    /// It may stand for a value without quotes. A name with a dot may not: `a.b` has to be quoted.
    fn is_value(&self) -> bool {
        match self.kind {
            Kind::Name => !self.text.contains('.'),
            Kind::Unquoted => true,
            Kind::Equals | Kind::String | Kind::Error => false,
        }
    }
}

/// The tokens of a line.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let text = self.rest.trim_start_matches([' ', '\t', '\r']);
        let first = text.chars().next().filter(|first| *first != '#')?;
        // The longest, of several the first.
        let candidates = [
            (Kind::Name, name(text)),
            (Kind::String, string(text)),
            (Kind::Unquoted, unquoted(text).max(integer(text)).max(decimal(text))),
            (Kind::Equals, usize::from(first == '=')),
            (Kind::Error, first.len_utf8()),
        ];
        let longest = candidates.iter().map(|candidate| candidate.1).max()?;
        let (kind, length) = candidates.into_iter().find(|candidate| candidate.1 == longest)?;
        let (token, rest) = text.split_at(length);
        self.rest = rest;
        Some(Token { kind, text: token })
    }
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

fn is_letter_or_digit(c: char) -> bool {
    is_letter(c) || c.is_ascii_digit()
}

/// Bytes of the longest beginning of such characters.
fn while_is(text: &str, is: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is(c)).unwrap_or(text.len())
}

/// A name, or two with a dot between them.
fn name(text: &str) -> usize {
    let one = |text: &str| {
        if text.starts_with(is_letter) { while_is(text, is_letter_or_digit) } else { 0 }
    };
    let first = one(text);
    let second = text[first..].strip_prefix('.').map_or(0, one);
    if first > 0 && second > 0 { first + 1 + second } else { first }
}

fn unquoted(text: &str) -> usize {
    if !text.starts_with(is_letter) {
        return 0;
    }
    while_is(text, |c| is_letter_or_digit(c) || "-._:/".contains(c))
}

fn integer(text: &str) -> usize {
    let sign = usize::from(text.starts_with(['-', '+']));
    let hexadecimal = text[sign..].strip_prefix("0x").map_or(0, |digits| {
        let digits = while_is(digits, |c| c.is_ascii_hexdigit());
        if digits > 0 { 2 + digits } else { 0 }
    });
    let digits = while_is(&text[sign..], |c| c.is_ascii_digit()).max(hexadecimal);
    if digits == 0 {
        return 0;
    }
    sign + digits + while_is(&text[sign + digits..], |c| c.is_ascii_alphabetic())
}

fn decimal(text: &str) -> usize {
    let digits = |text: &str| while_is(text, |c| c.is_ascii_digit());
    let sign = usize::from(text.starts_with(['-', '+']));
    let point = sign + digits(&text[sign..]);
    if !text[point..].starts_with('.') {
        return 0;
    }
    let end = point + 1 + digits(&text[point + 1..]);
    let exponent = text[end..].strip_prefix(['e', 'E']).map_or(0, |text| {
        let sign = usize::from(text.starts_with(['-', '+']));
        let digits = digits(&text[sign..]);
        if digits > 0 { 1 + sign + digits } else { 0 }
    });
    end + exponent
}

/// A quoted string with its quotes: it ends at a quote that is neither doubled nor escaped.
fn string(text: &str) -> usize {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&b'\'') {
        return 0;
    }
    let mut at = 1;
    // Without an end it is no string.
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'\\' if at + 1 < bytes.len() => {
                1 + text[at + 1..].chars().next().map_or(1, char::len_utf8)
            }
            b'\'' if bytes.get(at + 1) == Some(&b'\'') => 2,
            b'\'' => return at + 1,
            _ => 1,
        };
    }
    0
}

/// Returns the value of a quoted string (`DeescapeQuotedString`). Octal escapes may make bytes that are not
/// UTF-8; they are replaced.
fn unescaped(quoted: &str) -> String {
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after.split_first()) {
            (b'\\', Some((b'0'..=b'7', _))) => {
                let digits = after.iter().take(3).take_while(|after| matches!(after, b'0'..=b'7'));
                let count = digits.clone().count();
                // As in the server's `char`: the higher bits are lost.
                bytes.push(digits.fold(0_u8, |sum, digit| (sum << 3) | (digit - b'0')));
                rest = &after[count..];
            }
            (b'\\', Some((escaped, after))) => {
                bytes.push(match escaped {
                    b'b' => 0x08,
                    b'f' => 0x0C,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                rest = after;
            }
            (b'\'', Some((b'\'', after))) => {
                bytes.push(b'\'');
                rest = after;
            }
            _ => bytes.push(*byte),
        }
    }
    // A string of C ends there.
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn setting(name: &str, value: &str) -> Entry {
        Entry::Setting { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn lines_are_read_as_the_server_reads_them() {
        // `lines_mean_what_they_mean_to_servers` asks servers about more of them.
        let check = |text: &str, expected: &[Entry]| {
            let file = parse(text);
            assert_eq!(
                (file.entries.as_slice(), file.errors.as_slice()),
                (expected, &[][..]),
                "{text}"
            );
        };
        check("", &[]);
        check("  # only a comment\r\n\n", &[]);
        check("Max_WAL_Size=1GB", &[setting("max_wal_size", "1GB")]);
        check("a 1 # one\nA = 2", &[setting("a", "1"), setting("a", "2")]);
        check("my.own = 'a''b\\'c\\\\d\\n\\101'", &[setting("my.own", "a'b'c\\d\nA")]);
        check("a = '#'#'", &[setting("a", "#")]);
        check("a'b'", &[setting("a", "b")]);
        check("a = en_US.UTF-8", &[setting("a", "en_US.UTF-8")]);
        check("a = 0x1FkB", &[setting("a", "0x1FkB")]);
        check("a = -1.5e+3", &[setting("a", "-1.5e+3")]);
        check("a = ''", &[setting("a", "")]);
        check("a = 'b\\000c'", &[setting("a", "b")]);
        let include =
            |path: &str, may_be_missing| Entry::Include { path: path.to_owned(), may_be_missing };
        check("include 'x.conf'", &[include("x.conf", false)]);
        check("INCLUDE_IF_EXISTS = 'x.conf'", &[include("x.conf", true)]);
        check("include_dir 'conf.d'", &[Entry::IncludeDirectory { path: "conf.d".to_owned() }]);
    }

    #[test]
    fn what_the_server_refuses_is_an_error() {
        let check = |text: &str, near: &str| {
            let file = parse(&format!("first = 1\n{text}\nlast = 1\n"));
            assert_eq!(file.entries, [setting("first", "1"), setting("last", "1")], "{text}");
            assert_eq!(file.errors, [ConfSyntaxError { line: 2, near: near.to_owned() }], "{text}");
        };
        check("a", "end of line");
        check("a =", "end of line");
        check("a = 1.5GB", "\"GB\"");
        check("a = b c", "\"c\"");
        check("a = b.c", "\"b.c\"");
        check("a = 'b", "\"'\"");
        check("a = 'b' 'c'", "\"'c'\"");
        check("a = /tmp", "\"/\"");
        check("'a' = 1", "\"'a'\"");
        check("a-b = 1", "\"a-b\"");
        check("a == 1", "\"=\"");
    }

    #[test]
    fn plain_numbers_have_the_settings_unit() {
        let size_of =
            |name, value, bytes| assert_eq!(size(name, value), Ok(ByteSize(bytes)), "{value}");
        size_of("max_wal_size", "1024", 1 << 30);
        size_of("max_wal_size", "1GB", 1 << 30);
        size_of("max_wal_size", "1.5GB", 3 << 29);
        size_of("max_wal_size", " 0x10 MB ", 16 << 20);
        size_of("max_wal_size", "010", 8 << 20);
        size_of("max_wal_size", "1e3", 1000 << 20);
        // To whole megabytes, half to even, as the server does.
        size_of("max_wal_size", "30.1GB", 30_822 << 20);
        size_of("max_wal_size", "2560kB", 2 << 20);
        size_of("shared_buffers", "16384", 128 << 20);
        let time_of = |value, ms| {
            assert_eq!(
                time("checkpoint_timeout", value),
                Ok(TimeSpan(Duration::from_millis(ms))),
                "{value}"
            );
        };
        time_of("300", 300_000);
        time_of("5min", 300_000);
        time_of("0.5h", 1_800_000);
        time_of("90400ms", 90_000);
        for value in
            ["", "MB", "1mb", "1 000", "09", "-1", "1GB2", "1.2.3", "0x", "99999999999999999999TB"]
        {
            assert!(size("max_wal_size", value).is_err(), "{value}");
        }
        assert!(size("work_mem_of_none", "64").is_err(), "a unit is missing");
        assert_eq!(size("work_mem_of_none", "64kB"), Ok(ByteSize(64 << 10)));
    }

    #[test]
    fn switches_shares_and_compressions_are_the_servers() {
        let check = |value, expected| assert_eq!(boolean(value), expected, "{value}");
        for value in ["on", "ON", "t", "tru", "yes", "y", "1"] {
            check(value, Some(true));
        }
        for value in ["off", "of", "F", "false", "no", "n", "0"] {
            check(value, Some(false));
        }
        for value in ["", "o", "2", "onn", " on", "10"] {
            check(value, None);
        }
        assert_eq!(ratio("0.9"), Some(0.9));
        assert_eq!(ratio(" 1e-1 "), Some(0.1));
        for value in ["", "1.1", "-0.1", "nan", "inf", "0.9s"] {
            assert_eq!(ratio(value), None, "{value}");
        }
        assert_eq!(wal_compression("ON"), Some(Some(Compression::Pglz)));
        assert_eq!(wal_compression("Zstd"), Some(Some(Compression::Zstd)));
        assert_eq!(wal_compression("off"), Some(None));
        assert_eq!(wal_compression("brotli"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(name in "[a-zA-Z_][a-zA-Z0-9_]{0,9}(\\.[a-z]{1,5})?", value in "[^\\x00\r\n]*") {
            prop_assume!(!name.to_ascii_lowercase().starts_with("include"));
            let file = parse(&line(&name, &value));
            prop_assert_eq!(file.entries, [setting(&name.to_ascii_lowercase(), &value)]);
            prop_assert_eq!(file.errors, []);
        }

        #[test]
        fn any_text_is_read(text in "[a-c=' \\\\#.0-9\n\u{e4}-]*", any in ".*") {
            for text in [text, any] {
                let file = parse(&text);
                prop_assert!(file.entries.len() + file.errors.len() <= text.split('\n').count());
                let _ = (size("max_wal_size", &text), time("checkpoint_timeout", &text));
                let _ = (ratio(&text), boolean(&text), wal_compression(&text));
            }
        }

        #[test]
        fn amounts_with_their_unit_are_what_they_say(megabytes in 0_u64..1 << 31, seconds in 0_u64..1 << 31) {
            let bytes = ByteSize(megabytes << 20);
            prop_assert_eq!(size("max_wal_size", &megabytes.to_string()), Ok(bytes));
            prop_assert_eq!(size("max_wal_size", &bytes.to_string()), Ok(bytes));
            let span = TimeSpan(Duration::from_secs(seconds));
            prop_assert_eq!(time("checkpoint_timeout", &seconds.to_string()), Ok(span));
            prop_assert_eq!(time("checkpoint_timeout", &span.to_string()), Ok(span));
        }
    }
}
