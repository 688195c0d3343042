//! Values of parameters, as the client sent them, and the types that users made for them.

use std::borrow::Cow;
use std::fmt::Write as _;

use pgtoll_wire::Parameter;
use serde::{Deserialize, Serialize};

use crate::fields::{Fields, Malformed};

/// A parameter's value that is not NULL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParameterValue {
    /// In its type's text form.
    Text(String),
    /// In its type's binary form.
    Binary {
        /// The OID of the type, as the client declared it or the server inferred it; 0 where the capture
        /// did not see it.
        oid: u32,
        /// The bytes.
        #[serde(rename = "binary", with = "base64_text")]
        bytes: Vec<u8>,
    },
}

impl From<String> for ParameterValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl ParameterValue {
    /// Its text form; `None` of binary values of types whose text form does not name a row in practice, and
    /// of those that are no value of their type.
    pub(crate) fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Binary { oid, bytes } => text_of_binary(*oid, bytes).map(Cow::Owned),
        }
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary { bytes, .. } => bytes.len(),
        }
    }

    /// As it is sent, `None` as NULL.
    pub(crate) fn parameter(value: Option<&Self>) -> Parameter<'_> {
        match value {
            None => Parameter::Null,
            Some(Self::Text(text)) => Parameter::Text(text),
            Some(Self::Binary { bytes, .. }) => Parameter::Binary(bytes),
        }
    }
}

/// A type as the database has it in which the work was captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserType {
    /// Its OID.
    pub oid: u32,
    /// With its schema, as SQL has it.
    pub name: String,
    /// The shape of its binary values.
    #[serde(default, skip_serializing_if = "TypeShape::is_plain")]
    pub shape: TypeShape,
}

/// The shape of a type's binary values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TypeShape {
    /// No numbers of types.
    #[default]
    Plain,
    /// The number of the elements' type, and values of it.
    Array,
    /// Each column's number of its type, and its value.
    Composite,
    /// A value of another type.
    Domain {
        /// That type's OID.
        base: u32,
    },
}

impl TypeShape {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

pub(crate) mod base64_text {
    use std::borrow::Cow;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], into: S) -> Result<S::Ok, S::Error> {
        into.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = Cow::<'de, str>::deserialize(from)?;
        STANDARD.decode(&*text).map_err(serde::de::Error::custom)
    }
}

/// The text form of a binary value of a type that keys have in practice.
fn text_of_binary(oid: u32, bytes: &[u8]) -> Option<String> {
    let mut fields = Fields(bytes);
    let text = decode(oid, &mut fields).ok()??;
    fields.0.is_empty().then_some(text)
}

// These are in PostgreSQL's `pg_type.dat`, and never change.
const BOOL: u32 = 16;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const OID: u32 = 26;
const NUMERIC: u32 = 1700;
const UUID: u32 = 2950;
/// `"char"`, `name`, `text`, `unknown`, `bpchar`, `varchar`: their bytes are their text.
const TEXTS: [u32; 6] = [18, 19, 25, 705, 1042, 1043];

fn decode(oid: u32, fields: &mut Fields<'_>) -> Result<Option<String>, Malformed> {
    Ok(Some(match oid {
        BOOL => if fields.byte()? == 0 { "f" } else { "t" }.to_owned(),
        INT2 => fields.int16()?.to_string(),
        INT4 => fields.int32()?.to_string(),
        INT8 => fields.int64()?.to_string(),
        OID => fields.int32()?.cast_unsigned().to_string(),
        UUID => {
            let mut text = String::new();
            for length in [4, 2, 2, 2, 6] {
                if !text.is_empty() {
                    text.push('-');
                }
                for byte in fields.bytes(length)? {
                    // Writing to a string does not fail.
                    let _ = write!(text, "{byte:02x}");
                }
            }
            text
        }
        NUMERIC => return numeric(fields),
        oid if TEXTS.contains(&oid) => {
            let bytes = fields.bytes(fields.0.len())?;
            return Ok(str::from_utf8(bytes).ok().map(str::to_owned));
        }
        _ => return Ok(None),
    }))
}

/// Groups of four decimal digits, a weight, a sign, and the digits behind the point.
fn numeric(fields: &mut Fields<'_>) -> Result<Option<String>, Malformed> {
    let count = fields.count()?;
    let weight = i64::from(fields.int16()?);
    let sign = fields.int16()?.cast_unsigned();
    let scale = fields.count()?;
    let mut groups = Vec::new();
    for _ in 0..count {
        groups.push(fields.int16()?);
    }
    let sign = match sign {
        0 => "",
        0x4000 => "-",
        0xC000 => return Ok(Some("NaN".to_owned())),
        0xD000 => return Ok(Some("Infinity".to_owned())),
        0xF000 => return Ok(Some("-Infinity".to_owned())),
        _ => return Ok(None),
    };
    let group = |at: i64| {
        let found = usize::try_from(at).ok().and_then(|at| groups.get(at));
        found.copied().unwrap_or_default()
    };
    let mut text = sign.to_owned();
    if weight < 0 {
        text.push('0');
    }
    for at in 0..=weight {
        // Writing to a string does not fail.
        let _ = match at {
            0 => write!(text, "{}", group(at)),
            _ => write!(text, "{:04}", group(at)),
        };
    }
    if scale > 0 {
        let mut digits = String::new();
        let mut at = weight + 1;
        // A value below 0.0001 has empty groups before its first one.
        while digits.len() < scale {
            let _ = write!(digits, "{:04}", group(at));
            at += 1;
        }
        text.push('.');
        text.push_str(digits.get(..scale).unwrap_or_default());
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_text_form() {
        let check = |oid: u32, bytes: &[u8], expected: Option<&str>| {
            assert_eq!(text_of_binary(oid, bytes).as_deref(), expected, "{oid} {bytes:02x?}");
        };
        check(BOOL, &[1], Some("t"));
        check(INT2, &[0xff, 0xfe], Some("-2"));
        check(INT4, &[0, 0, 1, 0], Some("256"));
        check(INT8, &(-5_i64).to_be_bytes(), Some("-5"));
        check(INT8, &[0; 4], None);
        check(INT4, &[0; 5], None);
        check(OID, &u32::MAX.to_be_bytes(), Some("4294967295"));
        check(25, "ä".as_bytes(), Some("ä"));
        check(25, &[0xff], None);
        let uuid = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes();
        check(UUID, &uuid, Some("01234567-89ab-cdef-0123-456789abcdef"));
        check(600, &[0; 16], None);
    }

    #[test]
    fn plans_keep_bytes() {
        let check = |value: Option<ParameterValue>, expected: &str| {
            assert_eq!(serde_json::to_string(&value).unwrap(), expected);
            assert_eq!(serde_json::from_str::<Option<ParameterValue>>(expected).unwrap(), value);
        };
        check(None, "null");
        check(Some("it's".to_owned().into()), "\"it's\"");
        let bytes = vec![0, 0xff, 7];
        check(
            Some(ParameterValue::Binary { oid: 600, bytes }),
            "{\"oid\":600,\"binary\":\"AP8H\"}",
        );
        assert!(serde_json::from_str::<ParameterValue>("{\"oid\":600,\"binary\":\"?\"}").is_err());
    }

    #[test]
    fn numerics() {
        let numeric = |weight: i16, sign: u16, scale: u16, groups: &[i16]| {
            let mut bytes = u16::try_from(groups.len()).unwrap().to_be_bytes().to_vec();
            bytes.extend(weight.to_be_bytes());
            bytes.extend(sign.to_be_bytes());
            bytes.extend(scale.to_be_bytes());
            bytes.extend(groups.iter().flat_map(|group| group.to_be_bytes()));
            text_of_binary(NUMERIC, &bytes).unwrap()
        };
        assert_eq!(numeric(0, 0, 0, &[]), "0");
        assert_eq!(numeric(1, 0x4000, 2, &[1, 2345, 6700]), "-12345.67");
        assert_eq!(numeric(1, 0, 0, &[1]), "10000");
        assert_eq!(numeric(-1, 0, 4, &[5]), "0.0005");
        assert_eq!(numeric(-2, 0, 6, &[1200]), "0.000012");
        assert_eq!(numeric(0, 0xC000, 0, &[]), "NaN");
    }
}
