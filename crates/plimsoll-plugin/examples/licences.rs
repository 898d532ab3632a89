//! Licences: a pod holds as many as its label says, from Reserve on until it is gone.
//!
//! The configuration names the licences, one per line: the label of pods, how many there are, and how many seconds a pod may
//! keep its node while it waits for one.
//!
//! ```text
//! licences.example.com/matlab 20 30
//! ```
//!
//! A pod with the label `licences.example.com/matlab: "2"` takes two of twenty. When they are taken it keeps its node and
//! waits on Permit for 30 seconds; with 0 seconds it is not placed.

use plimsoll_plugin::{Charge, Manifest, Permit, Plugin, Pod, Rejection};

plimsoll_plugin::export!(Licences);

#[derive(Clone, Debug)]
struct Licence {
    label: String,
    total: i64,
    wait_seconds: u32,
}

/// The plugin.
#[derive(Debug)]
pub struct Licences(Vec<Licence>);

impl Licences {
    /// The licences that the pod takes: each with what it takes, and what is used with the pod.
    fn taken<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = (&'a Licence, &'a Charge)> {
        self.0.iter().filter_map(|licence| Some((licence, pod.charge(&licence.label)?)))
    }

    /// A licence of which more are used than there are.
    fn short<'a>(&'a self, pod: &'a Pod) -> Option<(&'a Licence, String)> {
        let (licence, charge) = self.taken(pod).find(|(licence, charge)| charge.used > licence.total)?;
        let text = format!(
            "{} of {} licences {} are used",
            charge.used - charge.amount,
            licence.total,
            licence.label
        );
        Some((licence, text))
    }
}

impl Plugin for Licences {
    fn configure(text: &str) -> Result<Self, String> {
        let mut licences = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let parsed = match words.as_slice() {
                [label, total, wait] => total
                    .parse()
                    .ok()
                    .zip(wait.parse().ok())
                    .map(|(total, wait_seconds)| Licence { label: (*label).to_owned(), total, wait_seconds }),
                _ => None,
            };
            let parsed = parsed.filter(|licence| licence.total >= 0);
            licences.push(parsed.ok_or_else(|| format!("line {}: write LABEL NUMBER SECONDS", at + 1))?);
        }
        Ok(Self(licences))
    }

    fn manifest(&self) -> Manifest {
        let manifest = Manifest::new().charges().pre_filters().reserves().permits();
        self.0.iter().fold(manifest, |manifest, licence| manifest.pod_label(&*licence.label))
    }

    fn charges(&self, pod: &Pod) -> Vec<Charge> {
        let one = |(licence, label): (&Licence, &Option<String>)| {
            let amount = label.as_ref()?.parse().ok().filter(|n| *n > 0)?;
            Some(Charge::new(&*licence.label, amount))
        };
        self.0.iter().zip(&pod.labels).filter_map(one).collect()
    }

    fn pre_filter(&self, pod: &Pod) -> Result<(), Rejection> {
        for (licence, charge) in self.taken(pod) {
            let Licence { label, total, wait_seconds } = licence;
            if charge.amount > *total {
                return Err(Rejection::Unresolvable(format!("there are only {total} licences {label}")));
            }
            if *wait_seconds == 0 && charge.used.saturating_add(charge.amount) > *total {
                return Err(Rejection::Unschedulable(format!(
                    "{} of {total} licences {label} are used",
                    charge.used
                )));
            }
        }
        Ok(())
    }

    fn reserve(&self, pod: &Pod) -> Result<(), Rejection> {
        match self.short(pod) {
            Some((licence, text)) if licence.wait_seconds == 0 => Err(Rejection::Unschedulable(text)),
            _ => Ok(()),
        }
    }

    fn permit(&self, pod: &Pod) -> Permit {
        match self.short(pod) {
            Some((licence, _)) => Permit::Wait(licence.wait_seconds.saturating_mul(1000)),
            None => Permit::Allow,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_plugin::Kit;

    use super::*;

    fn kit(seconds: u32) -> Kit<Licences> {
        let mut kit = Kit::new(&format!("matlab 3 {seconds}\nother 1 0\n")).expect("valid");
        kit.node("n", &[], &[]);
        kit
    }

    #[test]
    fn no_more_are_used_than_there_are() {
        let mut kit = kit(0);
        let two = kit.pod().label("matlab", "2");
        let placed = kit.schedule(&two).expect("two of three");
        assert_eq!(placed.permit, Permit::Allow);
        let why = Rejection::Unschedulable("2 of 3 licences matlab are used".to_owned());
        assert_eq!(kit.schedule(&two).expect_err("one is left"), why);
        assert!(kit.schedule(&kit.pod().label("matlab", "1").label("other", "1")).is_ok());
        kit.remove(&placed);
        assert!(kit.schedule(&two).is_ok());
    }

    #[test]
    fn more_than_there_are_is_hopeless() {
        let mut kit = kit(0);
        let why = Rejection::Unresolvable("there are only 3 licences matlab".to_owned());
        assert_eq!(kit.schedule(&kit.pod().label("matlab", "4")).expect_err("too many"), why);
        // What is no number takes none.
        assert!(kit.schedule(&kit.pod().label("matlab", "many")).is_ok());
        assert!(kit.schedule(&kit.pod()).is_ok());
    }

    #[test]
    fn a_pod_waits_on_its_node_for_a_licence() {
        let mut kit = kit(30);
        let first = kit.schedule(&kit.pod().label("matlab", "3")).expect("all of them");
        let second = kit.schedule(&kit.pod().label("matlab", "1")).expect("it waits");
        assert_eq!((&first.permit, &second.permit), (&Permit::Allow, &Permit::Wait(30_000)));
        assert_eq!(kit.permit(&second), Permit::Wait(30_000));
        kit.remove(&first);
        assert_eq!(kit.permit(&second), Permit::Allow);
    }

    #[test]
    fn a_wrong_configuration_is_refused() {
        for text in ["a", "a b 1", "a -1 1", "a 1 1 1"] {
            let error = Licences::configure(text).map(drop).expect_err(text);
            assert!(error.contains("line 1"), "{error}");
        }
    }
}
