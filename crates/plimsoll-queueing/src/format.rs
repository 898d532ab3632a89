//! Amounts as Kubernetes prints quantities.

use super::amount::Amount;

/// Prints an amount of a resource as Kueue does: cpu in milli steps, memory-like resources binary, the
/// rest decimal unless it counts `bytes`.
pub(crate) fn amount(resource: &str, a: Amount, bytes: bool) -> String {
    if a == Amount::UNLIMITED {
        return "<unlimited>".to_owned();
    }
    quantity(resource, a.0, bytes)
}

/// [`amount`] for a plain number.
pub(crate) fn quantity(resource: &str, v: i64, bytes: bool) -> String {
    if resource == "cpu" {
        decimal(v, 0)
    } else if bytes
        || resource == "memory"
        || resource == "ephemeral-storage"
        || resource.starts_with("hugepages-")
    {
        binary(v)
    } else {
        decimal(v, 1)
    }
}

/// Suffixes of powers of 1000, from milli.
const DECIMAL: [&str; 8] = ["m", "", "k", "M", "G", "T", "P", "E"];
/// Suffixes of powers of 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// `v` in units of the suffix at `unit`, in canonical decimal form.
fn decimal(v: i64, unit: usize) -> String {
    let (v, steps) = strip(v, 1000, DECIMAL.len() - 1 - unit);
    format!("{v}{}", if v == 0 { "" } else { DECIMAL.get(unit + steps).copied().unwrap_or("") })
}

/// `v` in canonical binary form; the decimal one where nothing can be divided by 1024, as Kueue reads what it
/// printed once more.
fn binary(v: i64) -> String {
    if v.unsigned_abs() < 1024 || v % 1024 != 0 {
        return decimal(v, 1);
    }
    let (v, steps) = strip(v, 1024, BINARY.len() - 1);
    format!("{v}{}", BINARY.get(steps).copied().unwrap_or(""))
}

/// Divides by `base` while nothing is lost, at most `max` times.
fn strip(mut v: i64, base: i64, max: usize) -> (i64, usize) {
    let mut steps = 0;
    while steps < max && v != 0 && v % base == 0 {
        v /= base;
        steps += 1;
    }
    (v, steps)
}

#[cfg(test)]
mod tests {
    use super::quantity;

    #[test]
    fn quantities_are_canonical() {
        let table = [
            ("cpu", 1500, "1500m"),
            ("cpu", 2000, "2"),
            ("cpu", 2_000_000, "2k"),
            ("cpu", 0, "0"),
            ("cpu", -500, "-500m"),
            ("memory", 512 << 20, "512Mi"),
            ("memory", 3 << 30, "3Gi"),
            ("memory", 1500, "1500"),
            ("memory", 1000, "1k"),
            ("memory", 1_000_000, "1M"),
            ("memory", 1_500_000_000, "1500M"),
            ("memory", 1_024_000, "1000Ki"),
            ("hugepages-2Mi", 4 << 20, "4Mi"),
            ("example.com/gpu", 16, "16"),
            ("example.com/gpu", 5000, "5k"),
        ];
        for (resource, v, want) in table {
            assert_eq!(quantity(resource, v, false), want);
        }
        assert_eq!(quantity("gpu.memory", 4864 << 20, true), "4864Mi");
    }
}
