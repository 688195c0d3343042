//! Masks passwords in text that is shown: connection strings in places where none is expected.

use std::borrow::Cow;
use std::ops::Range;

/// The text with `***` for what may be a password: between `:` and `@` of a URI, and behind the
/// `=` of a keyword like `password`. Rather too much is masked than too little.
pub fn masked(text: &str) -> Cow<'_, str> {
    if !text.contains(['=', '@', ':']) {
        return Cow::Borrowed(text);
    }
    let lines = text.split_inclusive('\n').map(|line| {
        let line = replaced(line, uri_password);
        match line {
            Cow::Borrowed(line) => replaced(line, keyword_value),
            Cow::Owned(line) => Cow::Owned(replaced(&line, keyword_value).into_owned()),
        }
    });
    let lines: Vec<Cow<'_, str>> = lines.collect();
    if lines.iter().all(|line| matches!(line, Cow::Borrowed(_))) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(lines.concat())
}

/// Finds the next secret from a place on: its range, which may be empty, and the place to continue
/// from.
type Find = fn(&str, usize) -> Option<(Range<usize>, usize)>;

/// The line with each secret replaced.
fn replaced(line: &str, find: Find) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut copied = 0;
    let mut from = 0;
    while let Some((secret, next)) = find(line, from) {
        if !secret.is_empty() && secret.start >= copied {
            shown.push_str(&line[copied..secret.start]);
            shown.push_str("***");
            copied = secret.end;
        }
        from = next;
    }
    if copied == 0 {
        return Cow::Borrowed(line);
    }
    shown.push_str(&line[copied..]);
    Cow::Owned(shown)
}

/// The password of the first URI from a place on. A path loses one of two slashes.
fn uri_password(line: &str, from: usize) -> Option<(Range<usize>, usize)> {
    let colon = from + line[from..].find(":/")?;
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-');
    let scheme = line[..colon].rsplit(|c| !is_of_scheme(c)).next().unwrap_or_default();
    let slashes = line[colon + 1..].bytes().take_while(|byte| *byte == b'/').count();
    let begin = colon + 1 + slashes;
    let is_ours = scheme.to_ascii_lowercase().contains("postgres");
    if scheme.is_empty() || (slashes < 2 && !is_ours) {
        return Some((begin..begin, begin));
    }
    let token = word_end(line, begin);
    // A password that was not encoded may hold anything, white space too.
    let region = if is_ours { line.trim_end().len().max(begin) } else { token };
    let at = line[begin..region].rfind('@').map(|at| begin + at);
    let separator = line[begin..at.unwrap_or(token)].find(':').map(|at| begin + at + 1);
    let Some(separator) = separator else { return Some((begin..begin, begin)) };
    let end = at.unwrap_or_else(|| {
        let digits = line[separator..].bytes().take_while(u8::is_ascii_digit).count();
        let after = line[separator + digits..token].chars().next();
        let is_port = is_ours && after.is_none_or(|c| !c.is_alphanumeric() && c != '%');
        if is_port || !is_ours { separator } else { token }
    });
    Some((separator..end, end.max(begin)))
}

/// The value of the first keyword from a place on that sounds like a secret.
fn keyword_value(line: &str, from: usize) -> Option<(Range<usize>, usize)> {
    let equals = from + line[from..].find('=')?;
    let before = line[..equals].trim_end();
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name = before.rsplit(|c| !is_of_name(c)).next().unwrap_or_default().to_ascii_lowercase();
    let is_secret = SECRETS.iter().any(|secret| name.contains(secret)) && name != "passfile";
    let next = equals + 1;
    if !is_secret {
        return Some((next..next, next));
    }
    let begin = next + (line[next..].len() - line[next..].trim_start().len());
    let value = &line[begin..];
    if value.starts_with("***") {
        return Some((next..next, begin + "***".len()));
    }
    let end = if let Some(inside) = value.strip_prefix('\'') {
        closing_quote(inside).map_or(line.trim_end().len(), |at| begin + 1 + at + 1)
    } else {
        pair_end(line, begin)
    };
    Some((begin..end.max(begin), end.max(next)))
}

/// The start of the next keyword, or the end of the line: white space may belong to a password that was
/// to be quoted.
fn pair_end(line: &str, begin: usize) -> usize {
    let mut from = begin;
    loop {
        let end = word_end(line, from);
        let rest = &line[end..];
        let word = rest.trim_start();
        if word.is_empty() {
            return end;
        }
        let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let name = word.find(|c| !is_of_name(c)).unwrap_or(word.len());
        if name > 0 && word[name..].starts_with('=') {
            return end;
        }
        from = end + (rest.len() - word.len());
    }
}

const SECRETS: [&str; 5] = ["pass", "pwd", "secret", "client_key", "server_key"];

fn word_end(line: &str, begin: usize) -> usize {
    line[begin..].find(char::is_whitespace).map_or(line.len(), |length| begin + length)
}

/// The end of a quoted value; a backslash takes the next character as it is.
fn closing_quote(text: &str) -> Option<usize> {
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\'' => return Some(at),
            '\\' => drop(characters.next()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn passwords_are_masked() {
        let check = |text: &str, expected: &str| {
            assert_eq!(masked(text), expected, "{text}");
            assert_eq!(masked(expected), expected, "once is enough");
        };
        check("read postgresql://u:s@h/db: missing", "read postgresql://u:***@h/db: missing");
        check("postgres://u:a@b/c@h", "postgres://u:***@h");
        check("'postgresql://u:open sesame@h'", "'postgresql://u:***@h'");
        check("/tmp/postgresql:/u:s@h/db", "/tmp/postgresql:/u:***@h/db");
        check("postgresql://u:12ab%zz x", "postgresql://u:*** x");
        check("mysql://u:s@h x@y", "mysql://u:***@h x@y");
        check("host=h password=s user=u", "host=h password=*** user=u");
        check("password = 'a \\' b' user=u", "password = *** user=u");
        check("passwrd=s", "passwrd=***");
        check("postgresql://h/d?password=s", "postgresql://h/d?password=***");
        check("password='open", "password=***");
        check("read password=open sesame: missing\n", "read password=***\n");
        check("password=open sesame dbname=d", "password=*** dbname=d");
        check("a\npassword=s\nb", "a\npassword=***\nb");
    }

    #[test]
    fn the_rest_stays_as_it_is() {
        for text in [
            "",
            "read /data/x@y: No such file or directory (os error 2)",
            "postgresql://h:5432/db",
            "postgresql://u@h:5432/db",
            "see https://example.com/a?b=c",
            "passfile=/home/me/.pgpass",
            "max_wal_size=1GB: x",
            "host=h password=*** is another one",
        ] {
            assert!(matches!(masked(text), Cow::Borrowed(_)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), like in "[:/@='\\\\ pasword\u{e9}\n]{0,40}") {
            let _ = masked(&text);
            let _ = masked(&like);
            let _ = masked(&format!("postgresql://{like}"));
            let _ = masked(&format!("password={like}"));
        }
    }
}
