//! What is wrong with the claims of a workload, as a field error.

/// Something wrong, below the path of a claim; written as a field error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// `Invalid value`: path below the claim, value as printed, text.
    Invalid(String, String, String),
    /// `Internal error`: path below the claim, text. Something is missing that may come.
    Missing(String, String),
    /// A class that the configuration doesn't know.
    Unmapped(String),
}

impl Problem {
    /// The field error; `named` goes before the text.
    pub(super) fn text(&self, claim: &str, podset: &str, named: &str) -> String {
        let below = |path: &str| if path.is_empty() { claim.to_owned() } else { format!("{claim}.{path}") };
        match self {
            Self::Invalid(path, value, text) => {
                format!("{}: Invalid value: {value}: {named}{text}", below(path))
            }
            Self::Missing(path, text) => format!("{}: Internal error: {named}{text}", below(path)),
            Self::Unmapped(class) => format!(
                "{claim}.resourceClaimTemplateName: Not found: \"DeviceClass {class} is not mapped in DRA configuration for podset {podset}\""
            ),
        }
    }
}

/// A text as Go prints it in errors.
pub(super) fn quoted(text: &str) -> String {
    format!("{text:?}")
}
