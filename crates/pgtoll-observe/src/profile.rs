//! Functions in which a profiler found the CPU.

use std::collections::BTreeMap;

/// Samples of a profiler by the function in which each was taken.
///
/// ```
/// use pgtoll_observe::Profile;
///
/// let profile = Profile::parse("# Samples\tSymbol\n120\t[.] pg_checksum_page\n280\t[.] other\n");
/// assert_eq!(profile.samples, 400);
/// assert_eq!(profile.by_symbol["pg_checksum_page"], 120);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// All samples, also those whose function is not known.
    pub samples: u64,
    /// Samples by symbol. Where a program has no symbol for an address, the address is one.
    pub by_symbol: BTreeMap<String, u64>,
}

impl Profile {
    /// Reads what `perf report --stdio --no-children -F sample,symbol -t TAB` prints: with a
    /// separator perf neither pads nor cuts a line, and replaces the separator within symbols. A
    /// line that is no row (comments, warnings) is passed over.
    pub fn parse(report: &str) -> Self {
        let mut profile = Self::default();
        for (samples, symbol) in report.lines().filter_map(row) {
            profile.samples += samples;
            *profile.by_symbol.entry(symbol.to_owned()).or_default() += samples;
        }
        profile
    }
}

/// `120<TAB>[.] symbol`, with blanks around.
fn row(line: &str) -> Option<(u64, &str)> {
    let (samples, symbol) = line.split_once('\t')?;
    // The mark in brackets says user, kernel, guest.
    let (mark, symbol) = symbol.trim().split_once("] ")?;
    mark.starts_with('[').then_some(())?;
    Some((samples.trim().parse().ok()?, symbol.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by perf 6.1, shortened.
    const REPORT: &str = "\
# To display the perf.data header info, please use --header/--header-only options.
#
# Samples: 9K of event 'cpu-clock:u'
# Event count (approx.): 9537537528
#
#      Samples\tSymbol                             
 732        \t[.] _int_free
 672        \t[.] operator new(unsigned long)
 360        \t[.] cfree@GLIBC_2.2.5
 120        \t[.] 0x0000000000059c04
 5          \t[k] _int_free
Warning: 12\tpoints
";

    #[test]
    fn rows_are_read_and_nothing_else() {
        let profile = Profile::parse(REPORT);
        assert_eq!(profile.samples, 1889);
        assert_eq!(profile.by_symbol.len(), 4);
        assert_eq!(profile.by_symbol["_int_free"], 737);
        assert_eq!(profile.by_symbol["operator new(unsigned long)"], 672);
        assert_eq!(Profile::parse("Error:\nThe out.data data has no samples!\n").samples, 0);
    }
}
