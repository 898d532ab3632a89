//! A scenario as lines of JSON: the first has everything but what happens, each of the others one operation.

use super::{Scenario, Timed};

impl Scenario {
    /// The scenario as text.
    pub fn to_text(&self) -> String {
        // Maps with text keys and numbers can always be written.
        let mut lines = vec![serde_json::to_string(self).unwrap_or_default()];
        lines.extend(self.operations.iter().map(|o| serde_json::to_string(o).unwrap_or_default()));
        lines.push(String::new());
        lines.join("\n")
    }

    /// Reads what [`Scenario::to_text`] wrote. Empty lines and lines that begin with `//` are skipped.
    ///
    /// # Errors
    /// Which line can't be read, and why.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let mut out: Option<Self> = None;
        for (i, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with("//") {
                continue;
            }
            let wrong = |e: serde_json::Error| format!("line {}: {e}", i + 1);
            match &mut out {
                None => out = Some(serde_json::from_str(line).map_err(wrong)?),
                Some(scenario) => {
                    let timed: Timed = serde_json::from_str(line).map_err(wrong)?;
                    scenario.operations.push(timed);
                }
            }
        }
        out.ok_or_else(|| "no scenario".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Profile, generate};
    use super::*;

    #[test]
    fn a_scenario_reads_as_it_was_written() {
        for seed in 0..50 {
            let scenario = generate(seed, Profile::default());
            assert_eq!(Scenario::from_text(&scenario.to_text()).as_ref(), Ok(&scenario));
        }
        assert!(Scenario::from_text("").is_err());
        assert!(Scenario::from_text("{").unwrap_err().starts_with("line 1"));
    }
}
