//! Arguments of `pgtoll page` and the commands below it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pgtoll_record::{PageChecksumsRecord, PageDifferenceRecord, PageRecord};
use pgtoll_report::RecordKind;

use super::output::{FormatOptions, formats_of};

#[derive(Args, Debug)]
pub(crate) struct PageArguments {
    #[command(subcommand)]
    pub(crate) command: PageCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PageCommand {
    /// Show a page: header, checksum, line pointers, bytes. Needs no server.
    #[command(after_help = PAGE_SHOW_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<PageRecord>())))]
    Show {
        /// A relation's file.
        file: PathBuf,
        /// The block in it, from 0.
        block: u64,
        #[command(flatten)]
        format: FormatOptions,
    },
    /// Compare the pages' stored checksums with computed ones.
    #[command(after_help = PAGE_CHECKSUM_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<PageChecksumsRecord>())))]
    Checksum {
        /// A relation's file.
        file: PathBuf,
        /// The block in it, from 0. Default: all.
        block: Option<u64>,
        #[command(flatten)]
        format: FormatOptions,
    },
    /// Show the differences of two pages: header, line pointers, rows, or hint bits alone.
    #[command(after_help = PAGE_DIFF_EXAMPLES, mut_arg("format", formats_of(RecordKind::for_record::<PageDifferenceRecord>())))]
    Diff {
        /// A relation's file.
        a: PathBuf,
        /// Another copy of it.
        b: PathBuf,
        /// The block in both, from 0.
        block: u64,
        #[command(flatten)]
        format: FormatOptions,
    },
}

const PAGE_SHOW_EXAMPLES: &str = "\
Examples:
  pgtoll page show /srv/pg/base/5/16384 7
  pgtoll page show --json base/5/16384.1 0  with all bytes in hexadecimal";

const PAGE_CHECKSUM_EXAMPLES: &str = "\
Examples:
  pgtoll page checksum /srv/pg/base/5/16384 all pages of a file
  pgtoll page checksum base/5/16384 7       one of them";

const PAGE_DIFF_EXAMPLES: &str = "\
Examples:
  pgtoll page diff primary/base/5/16384 standby/base/5/16384 7";
