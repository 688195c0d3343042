//! Parameters in binary form as text: those of common types.

use std::fmt::Write as _;

use super::splitter::{BrokenStream, Fields};

/// The text of a binary value; `None` for a type that is not decoded, or bytes that are no value of it.
pub(crate) fn text_of_binary(oid: u32, bytes: &[u8]) -> Option<String> {
    let mut fields = Fields(bytes);
    let text = decode(oid, &mut fields).ok()??;
    fields.0.is_empty().then_some(text)
}

// These are in PostgreSQL's `pg_type.dat`, and never change.
const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const OID: u32 = 26;
const FLOAT4: u32 = 700;
const FLOAT8: u32 = 701;
const DATE: u32 = 1082;
const TIMESTAMP: u32 = 1114;
const TIMESTAMPTZ: u32 = 1184;
const NUMERIC: u32 = 1700;
const UUID: u32 = 2950;
const JSONB: u32 = 3802;
/// `"char"`, `name`, `text`, `json`, `xml`, `unknown`, `bpchar`, `varchar`: their bytes are their text.
const TEXTS: [u32; 8] = [18, 19, 25, 114, 142, 705, 1042, 1043];
/// Arrays of the types above, each with the type of its elements.
const ARRAYS: [u32; 18] = [
    1000, 1001, 1005, 1007, 1009, 1014, 1015, 1016, 1021, 1022, 1028, 1115, 1182, 1185, 1231, 2951,
    199, 3807,
];

fn decode(oid: u32, fields: &mut Fields<'_>) -> Result<Option<String>, BrokenStream> {
    Ok(Some(match oid {
        BOOL => if fields.byte()? == 0 { "f" } else { "t" }.to_owned(),
        INT2 => fields.int16()?.to_string(),
        INT4 => fields.int32()?.to_string(),
        INT8 => fields.int64()?.to_string(),
        OID => fields.int32()?.cast_unsigned().to_string(),
        FLOAT4 => float(f64::from(f32::from_bits(fields.int32()?.cast_unsigned())), |value| {
            #[expect(clippy::cast_possible_truncation, reason = "it was one")]
            let value = value as f32;
            value.to_string()
        }),
        FLOAT8 => float(f64::from_bits(fields.int64()?.cast_unsigned()), |value| value.to_string()),
        BYTEA => {
            let mut text = "\\x".to_owned();
            push_hex(&mut text, fields.bytes(fields.0.len())?);
            text
        }
        UUID => {
            let mut text = String::new();
            for length in [4, 2, 2, 2, 6] {
                if !text.is_empty() {
                    text.push('-');
                }
                push_hex(&mut text, fields.bytes(length)?);
            }
            text
        }
        JSONB if fields.byte()? == 1 => return utf8(fields),
        DATE => return Ok(date(i64::from(fields.int32()?))),
        TIMESTAMP => return Ok(timestamp(fields.int64()?, "")),
        TIMESTAMPTZ => return Ok(timestamp(fields.int64()?, "+00")),
        NUMERIC => return numeric(fields),
        oid if TEXTS.contains(&oid) => return utf8(fields),
        oid if ARRAYS.contains(&oid) => return array(fields),
        _ => return Ok(None),
    }))
}

fn utf8(fields: &mut Fields<'_>) -> Result<Option<String>, BrokenStream> {
    let bytes = fields.bytes(fields.0.len())?;
    Ok(str::from_utf8(bytes).ok().map(str::to_owned))
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
}

/// Rust writes the fewest digits that give the number again, as the server does.
fn float(value: f64, finite: impl Fn(f64) -> String) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        finite(value)
    }
}

/// Days since 2000-01-01, in years that have four digits.
fn date(days: i64) -> Option<String> {
    match i32::try_from(days) {
        Ok(i32::MAX) => return Some("infinity".to_owned()),
        Ok(i32::MIN) => return Some("-infinity".to_owned()),
        _ => {}
    }
    let (year, month, day) = civil(days)?;
    Some(format!("{year:04}-{month:02}-{day:02}"))
}

/// Microseconds since 2000-01-01.
fn timestamp(us: i64, zone: &str) -> Option<String> {
    match us {
        i64::MAX => return Some("infinity".to_owned()),
        i64::MIN => return Some("-infinity".to_owned()),
        _ => {}
    }
    let (days, in_day) = (us.div_euclid(DAY_US), us.rem_euclid(DAY_US));
    let (year, month, day) = civil(days)?;
    let (seconds, fraction) = (in_day / 1_000_000, in_day % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let date = format!("{year:04}-{month:02}-{day:02}");
    Some(format!("{date} {hour:02}:{minute:02}:{second:02}.{fraction:06}{zone}"))
}

const DAY_US: i64 = 86_400_000_000;

/// Year, month and day of a number of days since 2000-01-01, by the Gregorian calendar.
fn civil(days: i64) -> Option<(i64, i64, i64)> {
    // Days since 0000-03-01, so that a leap day is a year's last one.
    let shifted = days.checked_add(730_425)?;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (1..=9999).contains(&year).then_some((year, month, day))
}

/// Groups of four decimal digits, a weight, a sign, and the digits behind the point.
fn numeric(fields: &mut Fields<'_>) -> Result<Option<String>, BrokenStream> {
    let (count, weight) = (fields.count()?, i64::from(fields.int16()?));
    let (sign, scale) = (fields.int16()?.cast_unsigned(), fields.count()?);
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

/// Dimensions, then elements, as an array's text form has them.
fn array(fields: &mut Fields<'_>) -> Result<Option<String>, BrokenStream> {
    let dimensions = fields.int32()?;
    fields.int32()?;
    let element = fields.int32()?.cast_unsigned();
    match dimensions {
        0 => return Ok(Some("{}".to_owned())),
        1 => {}
        _ => return Ok(None),
    }
    let count = fields.int32()?;
    if fields.int32()? != 1 {
        return Ok(None);
    }
    let mut text = "{".to_owned();
    for at in 0..count {
        if at > 0 {
            text.push(',');
        }
        let length = fields.int32()?;
        let Ok(length) = usize::try_from(length) else {
            text.push_str("NULL");
            continue;
        };
        let Some(value) = text_of_binary(element, fields.bytes(length)?) else { return Ok(None) };
        text.push('"');
        for character in value.chars() {
            if matches!(character, '"' | '\\') {
                text.push('\\');
            }
            text.push(character);
        }
        text.push('"');
    }
    text.push('}');
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(oid: u32, bytes: &[u8], expected: Option<&str>) {
        assert_eq!(text_of_binary(oid, bytes).as_deref(), expected, "{oid} {bytes:02x?}");
    }

    #[test]
    fn numbers_and_texts() {
        check(BOOL, &[1], Some("t"));
        check(INT2, &[0xff, 0xfe], Some("-2"));
        check(INT4, &[0, 0, 1, 0], Some("256"));
        check(INT8, &(-5_i64).to_be_bytes(), Some("-5"));
        check(INT8, &[0; 4], None);
        check(INT4, &[0; 5], None);
        check(OID, &u32::MAX.to_be_bytes(), Some("4294967295"));
        check(FLOAT8, &0.1_f64.to_be_bytes(), Some("0.1"));
        check(FLOAT4, &0.1_f32.to_be_bytes(), Some("0.1"));
        check(FLOAT8, &f64::NEG_INFINITY.to_be_bytes(), Some("-Infinity"));
        check(25, "ä".as_bytes(), Some("ä"));
        check(25, &[0xff], None);
        check(BYTEA, &[1, 0xab], Some("\\x01ab"));
        check(JSONB, b"\x01{}", Some("{}"));
        check(JSONB, b"\x02{}", None);
        let uuid = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes();
        check(UUID, &uuid, Some("01234567-89ab-cdef-0123-456789abcdef"));
        check(600, &[0; 16], None);
    }

    #[test]
    fn times() {
        check(DATE, &0_i32.to_be_bytes(), Some("2000-01-01"));
        check(DATE, &59_i32.to_be_bytes(), Some("2000-02-29"));
        check(DATE, &(-1_i32).to_be_bytes(), Some("1999-12-31"));
        check(DATE, &9824_i32.to_be_bytes(), Some("2026-11-24"));
        check(DATE, &i32::MAX.to_be_bytes(), Some("infinity"));
        check(DATE, &(-800_000_i32).to_be_bytes(), None);
        check(TIMESTAMP, &(-1_i64).to_be_bytes(), Some("1999-12-31 23:59:59.999999"));
        let noon = (DAY_US / 2).to_be_bytes();
        check(TIMESTAMPTZ, &noon, Some("2000-01-01 12:00:00.000000+00"));
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

    #[test]
    fn arrays() {
        let header = |dimensions: i32, element: u32| {
            [dimensions.to_be_bytes(), [0; 4], element.to_be_bytes()].concat()
        };
        check(1007, &header(0, INT4), Some("{}"));
        let mut texts = header(1, 25);
        texts.extend([3_i32, 1, 3].iter().flat_map(|word| word.to_be_bytes()));
        texts.extend(b"a\"b\0\0\0\0\xff\xff\xff\xff");
        check(1009, &texts, Some("{\"a\\\"b\",\"\",NULL}"));
        check(1009, &header(2, 25), None);
        // A count that nothing follows.
        let mut claimed = header(1, INT4);
        claimed.extend([i32::MAX, 1].iter().flat_map(|word| word.to_be_bytes()));
        check(1007, &claimed, None);
    }
}
