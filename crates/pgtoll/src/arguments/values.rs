//! Values that options of several commands take: times, settings, connection strings.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::num::NonZeroU8;

use clap::Args;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use pgtoll_format::{ByteSize, TimeSpan};
use pgtoll_wire::Dsn;

/// Named profiles, which other programs take by an option, are not read: it says so.
#[derive(Args, Debug)]
pub(crate) struct RefusedProfile {
    #[arg(long, hide = true, value_name = "NAME", value_parser = no_profile)]
    profile: Option<Infallible>,
}

fn no_profile(name: &str) -> Result<Infallible, String> {
    Err(format!(
        "pgtoll reads no profiles; give it their credentials instead: eval \"$(aws configure \
         export-credentials --profile {} --format env)\"",
        pgtoll_format::shell_quoted(name)
    ))
}

pub(super) fn second_to_week(text: &str) -> Result<TimeSpan, String> {
    between(text, "1s", "7d")
}

pub(super) fn between(text: &str, least: &str, most: &str) -> Result<TimeSpan, String> {
    let read = |text: &str| text.parse::<TimeSpan>().map_err(|error| error.to_string());
    let span = read(text)?;
    if span < read(least)? || span > read(most)? {
        return Err(format!("\"{text}\" is not between {least} and {most}"));
    }
    Ok(span)
}

pub(super) fn setting(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
    let (name, value) = parts
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("\"{text}\" is not NAME=VALUE"))?;
    Ok((name.to_ascii_lowercase(), value.trim_matches('\'').to_owned()))
}

/// Reads connection strings. Other parsers of arguments have their errors shown with the argument;
/// here it may hold a password.
#[derive(Clone)]
pub(super) struct DsnParser;

impl TypedValueParser for DsnParser {
    type Value = Dsn;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Dsn, clap::Error> {
        let mistake = match value.to_str() {
            None => "not UTF-8\n".to_owned(),
            Some(text) => match Dsn::parse(text) {
                Ok(dsn) => return Ok(dsn),
                Err(error) => {
                    let hint = error.hint().map(|hint| format!("hint: {hint}\n"));
                    format!("{}\n{}", pgtoll_system::error_chain(&error), hint.unwrap_or_default())
                }
            },
        };
        let name = argument.map_or_else(|| "--dsn".to_owned(), ToString::to_string);
        let message = format!("invalid value for '{name}': {mistake}");
        Err(clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command))
    }
}

pub(super) fn jobs(text: &str) -> Result<NonZeroU8, String> {
    text.parse().map_err(|_| format!("\"{text}\" is not a number from 1 to 255"))
}

/// Up to a quarter of the statements that may wait to be written.
pub(super) fn copy_data_size(text: &str) -> Result<ByteSize, String> {
    let refused = || format!("\"{text}\" is not a size up to 16MB");
    text.parse().ok().filter(|size: &ByteSize| size.0 <= 16 << 20).ok_or_else(refused)
}

/// `200MB/s`, with or without the seconds.
pub(super) fn read_rate(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize =
        text.strip_suffix("/s").unwrap_or(text).parse().map_err(|_| not_a_rate(text))?;
    if size.0 < 1 << 20 { Err(not_a_rate(text)) } else { Ok(size) }
}

fn not_a_rate(text: &str) -> String {
    format!("\"{text}\" is not a rate like 200MB/s, of at least 1MB/s")
}
