//! Hints of the libraries' errors: the action that a user can take.

use std::error::Error;

use crate::mistakes::Usage;

/// An error that may have a hint.
trait Hint: Error + 'static {
    /// Returns advice in one sentence.
    fn hint(&self) -> Option<String>;
}

/// Takes the hint of an error if it is of one type.
type CollectHint = fn(&(dyn Error + 'static)) -> Option<String>;

/// Lists error types that have a method `hint`.
macro_rules! errors_with_hints {
    ($($error:ty,)+) => {
        $(impl Hint for $error {
            fn hint(&self) -> Option<String> {
                <$error>::hint(self)
            }
        })+

        const ERRORS_WITH_HINTS: &[CollectHint] = &[$(hint_of::<$error>,)+];
    };
}

errors_with_hints! {
    Usage,
    pgtoll_alter::CorruptError,
    pgtoll_alter::RepairError,
    pgtoll_alter::WriteError,
    pgtoll_measure::BenchError,
    pgtoll_measure::ExperimentError,
    pgtoll_cluster::ClusterError,
    pgtoll_datadir::AttachError,
    pgtoll_datadir::DatadirError,
    pgtoll_drill::DrillError,
    pgtoll_estimate::FleetCpuError,
    pgtoll_fleet::FleetError,
    pgtoll_format::log::LogError,
    pgtoll_lab::BalanceError,
    pgtoll_lab::BridgeError,
    pgtoll_lab::CorruptionError,
    pgtoll_lab::ExchangeError,
    pgtoll_lab::FailoverError,
    pgtoll_lab::JudgeError,
    pgtoll_lab::WatchError,
    pgtoll_observe::ObserveError,
    pgtoll_predict::PredictError,
    pgtoll_record::RecordError,
    pgtoll_replay::ComparisonError,
    pgtoll_replay::ReplayError,
    pgtoll_report::FinishedRecordError,
    pgtoll_rolling::RollingError,
    pgtoll_store::StoreError,
    pgtoll_store::StoreUrlError,
    pgtoll_verify::PageFileError,
    pgtoll_verify::PatrolError,
    pgtoll_verify::ResumeError,
    pgtoll_wal::ServerError,
    pgtoll_wal::WalReadError,
    pgtoll_wire::DsnError,
    pgtoll_wire::Error,
}

fn hint_of<T: Hint>(error: &(dyn Error + 'static)) -> Option<String> {
    error.downcast_ref::<T>().and_then(T::hint)
}

/// The hint of the first error in the chain that has one.
pub(crate) fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        // What a reader failed with is in its error, and is no cause of that.
        let of_reader = || cause.downcast_ref::<std::io::Error>().and_then(hint_of_reader);
        hint_of_cause(cause).or_else(of_reader)
    })
}

fn hint_of_cause(cause: &(dyn Error + 'static)) -> Option<String> {
    ERRORS_WITH_HINTS.iter().find_map(|hint_of| hint_of(cause))
}

/// The hint of what a reader failed with.
pub(crate) fn hint_of_reader(error: &std::io::Error) -> Option<String> {
    error.get_ref().and_then(|inner| hint_of_cause(inner))
}

#[cfg(test)]
mod tests {
    use pgtoll_cluster::ClusterError;

    use super::*;

    #[test]
    fn the_hint_is_that_of_the_outermost_error_that_has_one() {
        let usage = Usage::error("wrong", "do it right").context("read my.toml");
        assert_eq!(hint(&usage).unwrap(), "do it right");
        let without = anyhow::anyhow!("of a type that is not listed");
        assert_eq!(hint(&without), None);
        let path = ClusterError::PathTooLong { path: "/var".into() };
        let expected = path.hint().unwrap();
        let wrapped = anyhow::Error::new(pgtoll_measure::BenchError::from(path));
        assert_eq!(hint(&wrapped).unwrap(), expected);
    }
}
