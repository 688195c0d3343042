//! Numbers as they are written in sentences and tables.

/// A ratio as a signed percentage: 1.098 is `+9.8`.
pub fn signed_percent(ratio: f64, digits: usize) -> String {
    let text = format!("{:+.digits$}", (ratio - 1.0) * 100.0);
    // Not `-0.0`.
    if text.trim_start_matches(['+', '-']).chars().all(|c| c == '0' || c == '.') {
        return format!("{:.digits$}", 0.0);
    }
    text
}

/// Three significant digits, or all that stand before the point.
pub fn three_digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// A share as a percentage: 0.081 is `8.1 %`, 0.12 is `12 %`.
pub fn percent_of_share(share: f64) -> String {
    match share * 100.0 {
        percent if percent.abs() >= 10.0 => format!("{percent:.0} %"),
        percent if percent.abs() >= 0.05 => format!("{percent:.1} %"),
        percent => format!("{percent:.2} %"),
    }
}

/// `1,000`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(signed_percent(0.99999, 1), "0.0");
        assert_eq!(signed_percent(1.098, 1), "+9.8");
        assert_eq!(signed_percent(0.911, 1), "-8.9");
    }
}
