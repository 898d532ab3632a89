//! Subjects of client certificates.

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME, Oid, asn1_rs::oid};

/// The subject of a verified client certificate, as listeners hand it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Common name: the user.
    pub common_name: String,
    /// Organizations: the groups.
    pub organizations: Vec<String>,
    /// UID of the user, mostly empty.
    pub uid: String,
    /// SHA-256 of the certificate, in lower-case hexadecimal.
    pub fingerprint: String,
    /// The first and the last second in which it is valid, since 1970: connections last longer than that, and are resumed.
    pub valid: (i64, i64),
}

/// UID of a user in a subject (apiserver's `asn1util.X509UID`).
const USER_UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// The subject of a certificate that has been verified, read as Go's `crypto/x509` and apiserver's
/// `CommonNameUserConversion` read it: the last common name counts, all organizations do, and a certificate that Go
/// couldn't read identifies no user.
///
/// # Errors
/// What can't be read.
pub fn peer(certificate: &CertificateDer<'_>) -> Result<PeerCertificate, String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|e| e.to_string())?;
    let (mut common_name, mut organizations, mut uids) = (String::new(), Vec::new(), Vec::new());
    for attribute in parsed.subject().iter_attributes() {
        // Values that Go can't read make it refuse the certificate, whatever they stand for.
        let value = text(attribute.attr_value())?;
        let kind = attribute.attr_type();
        if *kind == OID_X509_COMMON_NAME {
            common_name = value;
        } else if *kind == OID_X509_ORGANIZATION_NAME {
            organizations.push(value);
        } else if *kind == USER_UID {
            uids.push(value);
        }
    }
    let uid = match uids.as_slice() {
        [] => String::new(),
        [uid] if uid.is_empty() => return Err("UID cannot be an empty string".to_owned()),
        [uid] => uid.clone(),
        _ => return Err(format!("expected 1 UID, but found multiple: [{}]", uids.join(" "))),
    };
    let fingerprint = Sha256::digest(certificate).iter().map(|b| format!("{b:02x}")).collect();
    let validity = parsed.validity();
    let valid = (validity.not_before.timestamp(), validity.not_after.timestamp());
    Ok(PeerCertificate { common_name, organizations, uid, fingerprint, valid })
}

/// A string of a name in any of the encodings that Go reads (`parseASN1String` of `crypto/x509/parser.go`).
fn text(value: &Any<'_>) -> Result<String, String> {
    let bytes = value.data;
    let utf8 = || std::str::from_utf8(bytes).map(str::to_owned);
    match value.tag() {
        Tag::Utf8String => utf8().map_err(|_| "invalid UTF-8 string".to_owned()),
        // Latin-1 in practice, whatever the standard says.
        Tag::TeletexString => Ok(bytes.iter().copied().map(char::from).collect()),
        Tag::PrintableString if bytes.iter().copied().all(is_printable) => {
            utf8().map_err(|_| "invalid PrintableString".to_owned())
        }
        Tag::PrintableString => Err("invalid PrintableString".to_owned()),
        Tag::Ia5String if bytes.is_ascii() => utf8().map_err(|_| "invalid IA5String".to_owned()),
        Tag::Ia5String => Err("invalid IA5String".to_owned()),
        Tag::NumericString if bytes.iter().all(|b| b.is_ascii_digit() || *b == b' ') => {
            utf8().map_err(|_| "invalid NumericString".to_owned())
        }
        Tag::NumericString => Err("invalid NumericString".to_owned()),
        Tag::BmpString => bmp(bytes),
        tag => Err(format!("unsupported string type: {}", tag.0)),
    }
}

/// As `isPrintable` of `crypto/x509/parser.go`, with the two characters beyond the standard that it lets pass.
fn is_printable(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(&b)
}

/// Two bytes a character, without surrogates and what stands for no character; a zero at the end is dropped.
fn bmp(bytes: &[u8]) -> Result<String, String> {
    let (pairs, []) = bytes.as_chunks::<2>() else { return Err("invalid BMPString".to_owned()) };
    let pairs = pairs.strip_suffix(&[[0, 0]]).unwrap_or(pairs);
    let read = |pair: &[u8; 2]| match u16::from_be_bytes(*pair) {
        0xfffe | 0xffff | 0xfdd0..=0xfdef => None,
        unit => char::from_u32(u32::from(unit)),
    };
    pairs.iter().map(read).collect::<Option<_>>().ok_or_else(|| "invalid BMPString".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::string::{BmpString, Ia5String, PrintableString, TeletexString};
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair};

    fn certificate(subject: &[(DnType, DnValue)]) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn subjects_are_read_in_every_encoding_that_go_reads() {
        let uid = || DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
        for (value, want) in [
            (DnValue::Utf8String("zoë".into()), "zoë"),
            (DnValue::PrintableString(PrintableString::try_from("zoe").unwrap()), "zoe"),
            (DnValue::Ia5String(Ia5String::try_from("zoe@x").unwrap()), "zoe@x"),
            (DnValue::TeletexString(TeletexString::try_from("zoe").unwrap()), "zoe"),
            (DnValue::BmpString(BmpString::try_from("zoë").unwrap()), "zoë"),
        ] {
            let der = certificate(&[
                (DnType::OrganizationName, value.clone()),
                (DnType::CommonName, value.clone()),
                (uid(), value),
            ]);
            let peer = peer(&der).unwrap();
            assert_eq!((peer.common_name.as_str(), peer.uid.as_str()), (want, want));
            assert_eq!(peer.organizations, [want]);
        }
        let der = certificate(&[(DnType::CommonName, "x".into()), (uid(), "".into())]);
        assert_eq!(peer(&der), Err("UID cannot be an empty string".to_owned()));
    }

    fn tlv(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
        let contents = contents.concat();
        let mut out = vec![tag];
        match contents.len() {
            short @ 0..0x80 => out.push(short as u8),
            long => out.extend([0x82, (long >> 8) as u8, long as u8]),
        }
        out.extend(contents);
        out
    }

    /// Type, tag and contents of an attribute.
    type Attribute<'a> = (&'a [u8], u8, &'a [u8]);

    /// A certificate with another subject, which no library would make.
    fn with_subject(sets: &[&[Attribute<'_>]]) -> CertificateDer<'static> {
        let der = certificate(&[]);
        let sets: Vec<Vec<u8>> = sets
            .iter()
            .map(|pairs| {
                let pairs: Vec<Vec<u8>> = pairs
                    .iter()
                    .map(|(oid, tag, value)| tlv(0x30, &[&tlv(6, &[oid]), &tlv(*tag, &[value])]))
                    .collect();
                tlv(0x31, &pairs.iter().map(Vec::as_slice).collect::<Vec<_>>())
            })
            .collect();
        let subject = tlv(0x30, &sets.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        let tbs = parsed.tbs_certificate.as_ref();
        // The subject is the second of two empty names; the times lie between them.
        let empty = [0x30, 0];
        let at = tbs.windows(2).enumerate().filter(|(_, w)| *w == empty).map(|(i, _)| i).nth(1).unwrap();
        let head = tbs.len() - tlv_contents(tbs).len();
        let new = tlv(0x30, &[&tbs[head..at], &subject, &tbs[at + 2..]]);
        let rest = &tlv_contents(&der)[tbs.len()..];
        tlv(0x30, &[&new, rest]).into()
    }

    fn tlv_contents(der: &[u8]) -> &[u8] {
        match der[1] {
            0x82 => &der[4..],
            0x81 => &der[3..],
            _ => &der[2..],
        }
    }

    #[test]
    fn odd_subjects_are_read_as_go_reads_them() {
        const CN: &[u8] = &[0x55, 4, 3];
        const O: &[u8] = &[0x55, 4, 10];
        const UTF8: u8 = 12;
        const PRINTABLE: u8 = 19;
        const BMP: u8 = 30;
        // Several names, in one set and in many: the last common name, all organizations.
        let der = with_subject(&[
            &[(O, UTF8, b"a"), (CN, UTF8, b"first")],
            &[(CN, PRINTABLE, b"second")],
            &[(O, UTF8, b"b"), (O, PRINTABLE, b"c")],
        ]);
        let found = peer(&der).unwrap();
        assert_eq!(
            (found.common_name.as_str(), found.organizations.join(" ")),
            ("second", "a b c".to_owned())
        );
        assert_eq!(peer(&with_subject(&[&[(CN, BMP, b"\0a\0b\0\0")]])).unwrap().common_name, "ab");
        assert_eq!(peer(&with_subject(&[&[(CN, 20, b"\xe9")]])).unwrap().common_name, "é");
        assert_eq!(peer(&with_subject(&[])).unwrap().common_name, "");
        for (tag, bytes) in [
            (UTF8, &b"\xff"[..]),
            (PRINTABLE, b"a_b"),
            (PRINTABLE, b"a@b"),
            (22, b"\xe9"),
            (18, b"a"),
            (BMP, b"abc"),
            (BMP, b"\xd8\x00"),
            // An integer, and bytes.
            (2, b"\x01"),
            (4, b"a"),
        ] {
            let found = peer(&with_subject(&[&[(CN, UTF8, b"admin")], &[(O, tag, bytes)]]));
            assert!(found.is_err(), "{tag} {bytes:?}: {found:?}");
        }
    }

    #[test]
    fn broken_certificates_are_nobodys() {
        for bytes in [&[][..], &[0x30], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0x02, 0x30, 0x00]] {
            assert!(peer(&CertificateDer::from(bytes)).is_err());
        }
    }
}
