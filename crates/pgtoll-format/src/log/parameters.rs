//! The parameters of an extended-protocol statement.

/// The parameters in a `DETAIL`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParameterList {
    /// The values in order, `None` for NULL.
    pub values: Vec<Option<Vec<u8>>>,
    /// A value ends in `...`, as `log_parameter_max_length` cuts it.
    pub is_cut: bool,
}

/// Reads `Parameters: $1 = '…', $2 = NULL` (from 16) or `parameters: …` (to 15); `None` for another
/// `DETAIL`.
pub fn parameters(detail: &[u8]) -> Option<ParameterList> {
    let rest =
        detail.strip_prefix(b"Parameters: ").or_else(|| detail.strip_prefix(b"parameters: "))?;
    let mut list = ParameterList::default();
    let mut rest = rest;
    loop {
        rest = rest.strip_prefix(format!("${} = ", list.values.len() + 1).as_bytes())?;
        rest = if let Some(rest) = rest.strip_prefix(b"NULL") {
            list.values.push(None);
            rest
        } else {
            let (value, rest) = quoted(rest.strip_prefix(b"'")?)?;
            list.is_cut |= value.ends_with(b"...");
            list.values.push(Some(value));
            rest
        };
        if rest.is_empty() {
            return Some(list);
        }
        rest = rest.strip_prefix(b", ")?;
    }
}

/// The value up to its closing quote, and what follows.
fn quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut rest = text;
    loop {
        let quote = memchr::memchr(b'\'', rest)?;
        value.extend_from_slice(&rest[..quote]);
        match rest.get(quote + 1) {
            Some(b'\'') => {
                value.push(b'\'');
                rest = &rest[quote + 2..];
            }
            _ => return Some((value, &rest[quote + 1..])),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(detail: &str) -> Option<Vec<Option<String>>> {
        let text = |value: Vec<u8>| String::from_utf8(value).unwrap();
        parameters(detail.as_bytes())
            .map(|list| list.values.into_iter().map(|value| value.map(text)).collect())
    }

    #[test]
    fn both_spellings_and_values_that_look_like_more() {
        let expected = Some(vec![Some("it's, $3 = 'x'".to_owned()), None]);
        assert_eq!(values("Parameters: $1 = 'it''s, $3 = ''x''', $2 = NULL"), expected);
        assert_eq!(values("parameters: $1 = 'it''s, $3 = ''x''', $2 = NULL"), expected);
        for wrong in
            ["", "prepare: x", "Parameters: ", "Parameters: $2 = NULL", "Parameters: $1 = 'x"]
        {
            assert_eq!(values(wrong), None, "{wrong}");
        }
        assert!(parameters(b"Parameters: $1 = 'abc...'").unwrap().is_cut);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values in prop::collection::vec(
            prop::option::of("[ -~\n']{0,12}"), 1..6)) {
            let quoted = |value: &Option<String>| match value {
                Some(value) => format!("'{}'", value.replace('\'', "''")),
                None => "NULL".to_owned(),
            };
            let parts: Vec<String> = values
                .iter()
                .enumerate()
                .map(|(at, value)| format!("${} = {}", at + 1, quoted(value)))
                .collect();
            let detail = format!("Parameters: {}", parts.join(", "));
            let read = parameters(detail.as_bytes()).unwrap().values;
            let bytes: Vec<_> = values.into_iter().map(|value| value.map(String::into_bytes)).collect();
            prop_assert_eq!(read, bytes);
        }
    }
}
