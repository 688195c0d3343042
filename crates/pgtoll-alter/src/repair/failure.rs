//! Redo that ended before the end of the WAL.

use pgtoll_format::Lsn;

/// Redo ended at a record. Nothing that it made is on disk then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RedoFailure {
    /// The start of the record; `None`: the server does not say.
    pub(super) at: Option<Lsn>,
    pub(super) words: String,
}

impl RedoFailure {
    /// By the server's log; `None`: redo got to the end of the WAL.
    pub(super) fn of_log(log: &str) -> Option<Self> {
        if log.contains("redo done at ") {
            return None;
        }
        let behind = |mark: &str| log.split_once(mark).map(|(_, rest)| rest);
        let message = ["FATAL:  ", "PANIC:  "]
            .into_iter()
            .find_map(behind)
            .and_then(|rest| rest.lines().next());
        let message = message.unwrap_or("the server says nothing");
        let place = behind("WAL redo at ").and_then(|rest| rest.split_whitespace().next());
        let at = place.and_then(|place| place.parse().ok());
        let words = match place {
            Some(place) => format!("redo of the record at {place} fails: {message}"),
            None => format!("redo fails: {message}"),
        };
        Some(Self { at, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_says_at_which_record_redo_ended() {
        let log = "LOG:  redo starts at 0/10000A0\n\
                   FATAL:  failed to find requested node 5 in SPGiST inner tuple\n\
                   CONTEXT:  WAL redo at 0/26B0668 for SPGist/MOVE_LEAFS: nmoves: 16\n";
        let failure = RedoFailure::of_log(log).unwrap();
        assert_eq!(failure.at, Some(Lsn(0x026B_0668)));
        assert_eq!(
            failure.words,
            "redo of the record at 0/26B0668 fails: failed to find requested node 5 in SPGiST inner tuple"
        );
        let whole = "LOG:  redo done at 0/2748910 system usage: …\nFATAL:  could not open file\n";
        assert_eq!(RedoFailure::of_log(whole), None);
        let early =
            RedoFailure::of_log("FATAL:  could not create shared memory segment\n").unwrap();
        assert_eq!((early.at, early.words.contains("shared memory")), (None, true));
        assert!(RedoFailure::of_log("").is_some());
    }
}
