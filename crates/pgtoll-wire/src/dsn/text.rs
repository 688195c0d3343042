//! The two forms of a connection string, by the grammar of libpq.

use super::error::DsnError;
use super::keywords::keyword;

/// Keywords and values in the order of the text; later ones count.
pub(super) type Pairs = Vec<(String, String)>;

/// Reads a connection string. A text without `=` that is no URI names a database, as it does for
/// `psql` and `pg_dump`.
pub(super) fn read(text: &str) -> Result<Pairs, DsnError> {
    if let Some(rest) = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)) {
        return read_uri(rest);
    }
    let first_word = text.split(|c| c == '=' || is_space(c)).next().unwrap_or_default();
    match first_word.contains("://") {
        true => Err(DsnError::Uri { finding: "the scheme is not postgresql" }),
        false if text.contains('=') || text.trim().is_empty() => read_pairs(text),
        false => Ok(vec![("dbname".to_owned(), text.to_owned())]),
    }
}

const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// `key = 'value' …`. Values that are not quoted end at white space; a backslash takes the next
/// character as it is, in both.
fn read_pairs(text: &str) -> Result<Pairs, DsnError> {
    let mut pairs: Pairs = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = rest.find(|c| c == '=' || is_space(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let Some(after) = after.trim_start_matches(is_space).strip_prefix('=') else {
            // What stands there may be the second word of a password, so it is not shown.
            return Err(DsnError::MissingEquals { place: place(text, rest) });
        };
        if keyword(name).is_none() && (after_secret(&pairs) || !is_word(name)) {
            return Err(DsnError::UnknownWord { place: place(text, rest) });
        }
        let (value, after) = read_value(after.trim_start_matches(is_space))
            .ok_or_else(|| DsnError::OpenQuote { place: place(text, after) })?;
        pairs.push((name.to_owned(), value));
        rest = after.trim_start_matches(is_space);
    }
    Ok(pairs)
}

fn after_secret(pairs: &Pairs) -> bool {
    pairs.last().and_then(|(name, _)| keyword(name)).is_some_and(|keyword| keyword.secret)
}

/// Whether this could be a keyword, as opposed to something that is mistaken for one.
pub(super) fn is_word(name: &str) -> bool {
    name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// A value and what follows it; nothing if a quote is not closed.
fn read_value(text: &str) -> Option<(String, &str)> {
    let (quoted, text) = match text.strip_prefix('\'') {
        Some(inside) => (true, inside),
        None => (false, text),
    };
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\'' if quoted => return Some((value, &text[at + 1..])),
            c if !quoted && is_space(c) => return Some((value, &text[at..])),
            // A backslash at the very end stands for nothing.
            '\\' => value.extend(characters.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (!quoted).then_some((value, ""))
}

/// Returns whether C's `isspace` takes it for white space.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

/// The number of the character, from 1.
fn place(text: &str, rest: &str) -> usize {
    text.chars().count() - rest.chars().count() + 1
}

/// `[user[:password]@][host[:port],…][/dbname][?key=value&…]`, without the scheme.
fn read_uri(text: &str) -> Result<Pairs, DsnError> {
    let mut pairs = Pairs::new();
    let mut keep = |name: &str, value: &str| -> Result<(), DsnError> {
        if !value.is_empty() {
            pairs.push((name.to_owned(), decoded(value)?));
        }
        Ok(())
    };
    let mut rest = text;
    let before_host = text.find(['@', '/']).filter(|&at| text[at..].starts_with('@'));
    if let Some(at) = before_host {
        let (user, password) = text[..at].split_once(':').unwrap_or((&text[..at], ""));
        keep("user", user)?;
        keep("password", password)?;
        rest = &text[at + 1..];
    }
    let (hosts, ports, after) = read_hosts(rest)?;
    // The sign within a password, and not written as %40, makes a host of its end. After a slash
    // within a password all of that is a database.
    let path = after.split('?').next().unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or_default();
    let has_colon = authority.contains(':') && !authority.ends_with(']');
    let is_cut = before_host.is_none() && has_colon && path.contains('@');
    if hosts.contains('@') || ports.contains('@') || is_cut {
        return Err(DsnError::Uri { finding: "\"@\" within the host, port or path" });
    }
    // Commas alone are as many empty hosts, and those are the default.
    keep("host", &hosts)?;
    keep("port", &ports)?;
    let (path, query) = match after.strip_prefix('/') {
        Some(path) => path.split_once('?').unwrap_or((path, "")),
        None => ("", after.strip_prefix('?').unwrap_or_default()),
    };
    keep("dbname", path)?;
    read_query(query, &mut pairs)?;
    Ok(pairs)
}

/// The lists of hosts and of ports, and what follows them.
fn read_hosts(text: &str) -> Result<(String, String, &str), DsnError> {
    let mut hosts = String::new();
    let mut ports = String::new();
    let mut rest = text;
    loop {
        if let Some(inside) = rest.strip_prefix('[') {
            let Some((address, after)) = inside.split_once(']') else {
                return Err(DsnError::Uri { finding: "\"[\" without \"]\"" });
            };
            if address.is_empty() {
                return Err(DsnError::Uri { finding: "empty IPv6 address" });
            }
            if !(after.is_empty() || after.starts_with([':', '/', '?', ','])) {
                return Err(DsnError::Uri { finding: "neither port nor path after \"]\"" });
            }
            hosts.push_str(address);
            rest = after;
        } else {
            let end = rest.find([':', '/', '?', ',']).unwrap_or(rest.len());
            hosts.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        if let Some(after) = rest.strip_prefix(':') {
            let end = after.find(['/', '?', ',']).unwrap_or(after.len());
            ports.push_str(&after[..end]);
            rest = &after[end..];
        }
        let Some(after) = rest.strip_prefix(',') else { return Ok((hosts, ports, rest)) };
        hosts.push(',');
        ports.push(',');
        rest = after;
    }
}

fn read_query(query: &str, pairs: &mut Pairs) -> Result<(), DsnError> {
    if query.is_empty() {
        return Ok(());
    }
    // The last parameter may be followed by the sign that separates them.
    let parts = query.strip_suffix('&').filter(|parts| !parts.is_empty()).unwrap_or(query);
    for part in parts.split('&') {
        let (name, value) = match part.split_once('=') {
            Some((_, value)) if value.contains('=') => {
                return Err(DsnError::Uri { finding: "two \"=\" in one query parameter" });
            }
            Some(pair) => pair,
            None => return Err(DsnError::Uri { finding: "query parameter without \"=\"" }),
        };
        let name = decoded(name)?;
        let value = decoded(value)?;
        if after_secret(pairs) && keyword(&name).is_none() {
            // It may be the rest of a password with "&" in it.
            return Err(DsnError::Uri { finding: "unknown query parameter after a secret" });
        }
        // As the JDBC driver writes it.
        match (name.as_str(), value.as_str()) {
            ("ssl", "true") => pairs.push(("sslmode".to_owned(), "require".to_owned())),
            _ => pairs.push((name, value)),
        }
    }
    Ok(())
}

fn decoded(text: &str) -> Result<String, DsnError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => break,
            [b'%', high, low, after @ ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
                    return Err(DsnError::Uri { finding: "\"%\" without two hexadecimal digits" });
                };
                match u8::try_from(high * 16 + low) {
                    Ok(byte) if byte != 0 => bytes.push(byte),
                    _ => return Err(DsnError::Uri { finding: "forbidden value %00" }),
                }
                after
            }
            [b'%', ..] => {
                return Err(DsnError::Uri { finding: "\"%\" without two hexadecimal digits" });
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                after
            }
        };
    }
    String::from_utf8(bytes).map_err(|_| DsnError::Uri { finding: "not UTF-8" })
}

/// A value in the form of a `key=value` string.
pub(super) fn quoted(value: &str) -> String {
    let plain = |c: char| !is_space(c) && c != '\'' && c != '\\';
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let found = read(text).unwrap();
        let found: Vec<(&str, &str)> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, expected, "{text}");
    }

    fn refused(text: &str, expected: &str) {
        assert_eq!(read(text).unwrap_err().to_string(), expected, "{text}");
    }

    #[test]
    fn pairs() {
        check("", &[]);
        check("  \n", &[]);
        check("shop", &[("dbname", "shop")]);
        check("host=a port=1", &[("host", "a"), ("port", "1")]);
        check("host = 'a b' port= 1 ", &[("host", "a b"), ("port", "1")]);
        check(r"password='it\'s \\' user=x\ y", &[("password", r"it's \"), ("user", "x y")]);
        check("user='' dbname=a'b", &[("user", ""), ("dbname", "a'b")]);
        check("user=a'b'dbname=c", &[("user", "a'b'dbname=c")]);
        check("user='a'dbname=c", &[("user", "a"), ("dbname", "c")]);
        check(r"user=a\", &[("user", "a")]);
        // As libpq has it: white space may stand after the sign, whatever comes then.
        check("user= dbname=x", &[("user", "dbname=x")]);
        check("user=", &[("user", "")]);
    }

    #[test]
    fn uris() {
        check("postgresql://", &[]);
        check("postgres://localhost", &[("host", "localhost")]);
        check(
            "postgresql://alice:s%40y@db.example.com:5433/shop?sslmode=require&application_name=a%20b",
            &[
                ("user", "alice"),
                ("password", "s@y"),
                ("host", "db.example.com"),
                ("port", "5433"),
                ("dbname", "shop"),
                ("sslmode", "require"),
                ("application_name", "a b"),
            ],
        );
        check(
            "postgresql://a:1,b,[::1]:3/d",
            &[("host", "a,b,::1"), ("port", "1,,3"), ("dbname", "d")],
        );
        check("postgresql://[fe80::1]", &[("host", "fe80::1")]);
        check("postgresql:///d?host=/run/pg", &[("dbname", "d"), ("host", "/run/pg")]);
        check("postgresql://%2Frun%2Fpg:1", &[("host", "/run/pg"), ("port", "1")]);
        check("postgresql://u@/d", &[("user", "u"), ("dbname", "d")]);
        check("postgresql://:p@", &[("password", "p")]);
        check("postgresql://h?ssl=true", &[("host", "h"), ("sslmode", "require")]);
        check("postgresql://h/?", &[("host", "h")]);
        check("postgresql://h?port=1&", &[("host", "h"), ("port", "1")]);
        check("postgresql://h/a@b", &[("host", "h"), ("dbname", "a@b")]);
        check("postgresql://%40name", &[("host", "@name")]);
    }

    #[test]
    fn mistakes() {
        refused("host=a b c=d", "\"=\" is missing after the word at character 8");
        refused("user='a", "quote at character 6 is not closed");
        let hidden = "unknown keyword at character 15; it is not shown, since it may be a secret";
        refused("password=open sesame=1", hidden);
        let hidden = "unknown keyword at character 1; it is not shown, since it may be a secret";
        refused("postgresql//u:sesame@h/d?a=b", hidden);
        refused("mysql://h", "malformed connection URI: the scheme is not postgresql");
        for (text, finding) in [
            ("[::1", "\"[\" without \"]\""),
            ("[]", "empty IPv6 address"),
            ("[::1]x", "neither port nor path after \"]\""),
            ("u%4@h", "\"%\" without two hexadecimal digits"),
            ("u%@h", "\"%\" without two hexadecimal digits"),
            ("u%zz@h", "\"%\" without two hexadecimal digits"),
            ("u%00@h", "forbidden value %00"),
            ("u%ff@h", "not UTF-8"),
            ("h?a=b=c", "two \"=\" in one query parameter"),
            ("h?&", "query parameter without \"=\""),
            ("h?a=b&&", "query parameter without \"=\""),
            ("h?a", "query parameter without \"=\""),
            ("u:p@ss@h", "\"@\" within the host, port or path"),
            ("u:p@h:1@2", "\"@\" within the host, port or path"),
            ("u:1/2@h/d", "\"@\" within the host, port or path"),
            ("h?password=a&b=c", "unknown query parameter after a secret"),
        ] {
            refused(
                &format!("postgresql://{text}"),
                &format!("malformed connection URI: {finding}"),
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(
            values in prop::collection::vec(any::<String>(), 1..5),
            space in "[ \t\n]{1,3}",
        ) {
            let pairs: Vec<String> =
                values.iter().map(|value| format!("user{space}={space}{}", quoted(value))).collect();
            let read: Vec<String> =
                read(&pairs.join(&space)).unwrap().into_iter().map(|(_, value)| value).collect();
            prop_assert_eq!(read, values);
        }

        #[test]
        fn what_is_encoded_is_read_back(user in "[^\0]{1,20}", password in "[^\0]{1,20}") {
            let encoded = |text: &str| -> String {
                let bytes: Vec<String> = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
                bytes.concat()
            };
            let uri = format!("postgresql://{}:{}@h", encoded(&user), encoded(&password));
            let expected = [("user", user.as_str()), ("password", &password), ("host", "h")];
            let pairs = read(&uri).unwrap();
            let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            prop_assert_eq!(pairs, expected);
        }

        #[test]
        fn no_text_panics(text in any::<String>(), uri in "[a%@:/?&=,\\[\\]0 \\\\']{0,40}") {
            let _ = read(&text);
            let _ = read(&format!("postgresql://{text}"));
            let _ = read(&format!("postgresql://{uri}"));
            let _ = read(&uri);
        }
    }
}
