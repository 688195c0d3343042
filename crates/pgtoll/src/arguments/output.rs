//! In which format a record is printed, and where it goes: options of every command that makes one.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use pgtoll_report::{Format, RecordKind};

/// In which format a record is printed. [`formats_of`] narrows it for each command.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct FormatOptions {
    /// The format. Default: table, or what the name of an output file ends in.
    #[arg(long, value_parser = all_formats())]
    format: Option<Format>,
    /// Short for --format json.
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
}

impl FormatOptions {
    /// The format that was asked for by name.
    pub(crate) fn chosen(self) -> Option<Format> {
        self.format.or(self.json.then_some(Format::Json))
    }
}

/// In which format a record is shown, and where it goes.
#[derive(Args, Debug)]
pub(crate) struct OutputOptions {
    #[command(flatten)]
    pub(crate) format: FormatOptions,
    /// Write to this file, all or nothing, instead of stdout (-).
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Reads names of formats, each with what it is for.
fn all_formats() -> impl TypedValueParser<Value = Format> {
    let value = |format: Format| value_of(format).help(format.purpose());
    format_parser(Format::ALL.map(value).to_vec())
}

/// Has the option --format take the formats that records of this kind have.
pub(super) fn formats_of(kind: RecordKind) -> impl FnOnce(clap::Arg) -> clap::Arg {
    move |option| {
        let values = kind.formats().iter().map(|format| value_of(*format));
        option.value_parser(format_parser(values.collect()))
    }
}

fn value_of(format: Format) -> PossibleValue {
    let value = PossibleValue::new(format.name());
    if format == Format::Markdown { value.alias("markdown") } else { value }
}

fn format_parser(values: Vec<PossibleValue>) -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(values).try_map(|name| Format::of_name(&name).ok_or("no such format"))
}
