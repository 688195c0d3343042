//! The output of `pgbench`.

/// How versions mark the rate that leaves out the time to connect: since 14, and before.
const WITHOUT_CONNECTING: [&str; 2] =
    ["(without initial connection time)", "(excluding connections establishing)"];

/// Transactions per second, without the time to connect.
pub(crate) fn without_connecting(output: &str) -> Option<f64> {
    let mut rates = output.lines().filter_map(|line| line.trim().strip_prefix("tps = "));
    let rate = rates.find_map(|rate| {
        WITHOUT_CONNECTING.iter().find_map(|mark| rate.trim_end().strip_suffix(mark))
    })?;
    rate.trim().parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expected: Option<f64>) {
        assert_eq!(without_connecting(output), expected);
    }

    #[test]
    fn every_form_since_13_is_read() {
        check(
            "pgbench (15.14 (Debian 15.14-0+deb12u1))\n\
             transaction type: <builtin: select only>\n\
             scaling factor: 10\n\
             number of transactions actually processed: 84112\n\
             number of failed transactions: 0 (0.000%)\n\
             latency average = 0.024 ms\n\
             initial connection time = 2.113 ms\n\
             tps = 42109.274112 (without initial connection time)\n",
            Some(42_109.274_112),
        );
        check(
            "tps = 41950.000001 (including connections establishing)\n\
             tps = 42109.500000 (excluding connections establishing)\n",
            Some(42_109.5),
        );
    }

    #[test]
    fn anything_else_is_no_rate() {
        check("", None);
        check("pgbench: error: connection failed\n", None);
        check("tps = 41950.1 (including connections establishing)\n", None);
        check("tps = 0.000000 (without initial connection time)", None);
        check("tps = nan (without initial connection time)", None);
        check("tps = -5 (without initial connection time)", None);
        check("tps =  (without initial connection time)", None);
    }
}
