//! Outcome of a transaction by the server's answer.

use pgtoll_wire::{Completion, Error};

use super::journal::AttemptOutcome;

/// Returns the outcome by the answer to `COMMIT`. `in_transaction`: the server's state after it.
pub(crate) fn of_commit(
    answer: &Result<Completion, Error>,
    in_transaction: bool,
) -> AttemptOutcome {
    match answer {
        Ok(completion) if completion.tag == "COMMIT" && !in_transaction => {
            if is_unreplicated(completion) {
                AttemptOutcome::Unreplicated
            } else {
                AttemptOutcome::Acknowledged
            }
        }
        Ok(completion) if completion.tag == "ROLLBACK" => AttemptOutcome::Failed,
        Err(Error::ConnectTimeout) => AttemptOutcome::TimedOut,
        Err(Error::Server(error)) if is_abort(&error.severity, &error.sqlstate) => {
            AttemptOutcome::Failed
        }
        Ok(_) | Err(_) => AttemptOutcome::Unknown,
    }
}

/// `COMMIT` came back although the standbys had not confirmed: `SyncRepWaitForLSN` warns so when
/// the wait is cancelled. The function's name is not translated, the message is.
fn is_unreplicated(completion: &Completion) -> bool {
    let routine = completion.warning.as_ref().and_then(|warning| warning.routine.as_deref());
    routine == Some("SyncRepWaitForLSN")
}

/// Whether an error of `COMMIT` says for certain that the transaction was rolled back: an `ERROR`
/// of the server itself, before the commit record. What ends the session (`FATAL`) may come after
/// it, and so may classes that poolers use for servers that they lost.
fn is_abort(severity: &str, sqlstate: &str) -> bool {
    const UNCERTAIN: [&str; 5] = ["08", "53", "57", "58", "XX"];
    severity == "ERROR" && !UNCERTAIN.iter().any(|class| sqlstate.starts_with(class))
}

/// How the journal and the record name an error: its SQLSTATE; zeros where no server reported it.
pub(crate) fn code_of(error: &Error) -> [u8; 5] {
    let code = error.sqlstate().map(str::as_bytes);
    code.and_then(|code| code.try_into().ok()).unwrap_or_default()
}

/// The name of such a code in the record.
pub(crate) fn code_name(code: [u8; 5]) -> String {
    if code == [0; 5] {
        return "connection".to_owned();
    }
    String::from_utf8_lossy(&code).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(tag: &str) -> Completion {
        Completion { tag: tag.to_owned(), value: None, warning: None }
    }

    #[test]
    fn only_commit_outside_a_transaction_is_an_acknowledgement() {
        let pick = |tag, in_transaction| of_commit(&Ok(completion(tag)), in_transaction);
        assert_eq!(pick("COMMIT", false), AttemptOutcome::Acknowledged);
        assert_eq!(pick("COMMIT", true), AttemptOutcome::Unknown);
        assert_eq!(pick("ROLLBACK", false), AttemptOutcome::Failed);
        assert_eq!(pick("", false), AttemptOutcome::Unknown);
    }

    #[test]
    fn what_ends_the_connection_is_unknown() {
        let pick = |error| of_commit(&Err(error), false);
        assert_eq!(pick(Error::Closed { source: None }), AttemptOutcome::Unknown);
        assert_eq!(pick(Error::ConnectTimeout), AttemptOutcome::TimedOut);
        assert_eq!(pick(Error::Interrupted), AttemptOutcome::Unknown);
    }

    #[test]
    fn errors_before_the_commit_record_are_aborts() {
        for (severity, sqlstate, expected) in [
            ("ERROR", "40001", true),
            ("ERROR", "23505", true),
            ("FATAL", "57P01", false),
            ("ERROR", "57014", false),
            ("ERROR", "08P01", false),
            ("ERROR", "XX000", false),
            ("FATAL", "40001", false),
        ] {
            assert_eq!(is_abort(severity, sqlstate), expected, "{severity} {sqlstate}");
        }
    }
}
