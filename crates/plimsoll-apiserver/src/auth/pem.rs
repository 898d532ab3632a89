//! Errors of PEM files.

/// The error in words: rustls shows lines as lists of numbers.
pub(crate) fn pem_error(error: &rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::MissingSectionEnd { end_marker } => {
            let end = String::from_utf8_lossy(end_marker);
            format!("it is cut off: the line \"{}\" is missing", end.trim_end())
        }
        Error::IllegalSectionStart { line } => {
            format!("{:?} begins no PEM section", String::from_utf8_lossy(line))
        }
        Error::NoItemsFound => "it holds no PEM section of the wanted kind".to_owned(),
        other => other.to_string(),
    }
}
