//! Text form of a certificate's subject, as in RFC 2253 and as Java's `X500Principal.getName()`
//! writes it. ZooKeeper's X509AuthenticationProvider compares this form. It lists the relative
//! names in the reverse order of the DER encoding.

use std::fmt::Write as _;
use std::path::Path;

use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::Error;
use crate::der::{OBJECT_IDENTIFIER, SEQUENCE, SET, element, take};
use crate::files::PemFile;

/// Largest length in bytes of a subject that is used as an identity; bounded, as every write of the
/// client carries it. Equal to `IDENTITY_BYTES_MAX` of `znode`, so that ACLs can name every
/// subject.
const SUBJECT_BYTES_MAX: usize = 1_024;

/// Attribute types that are written as a keyword (RFC 2253, 2.3), by their encoded object
/// identifier. All other types are written as dotted numbers.
const WORDS: [(&[u8], &str); 9] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
];

/// Returns the subject of a certificate that the TLS handshake has verified.
///
/// # Errors
/// A description of why the subject cannot be used as an identity: it is empty, damaged or too
/// long.
pub(crate) fn of(certificate: &CertificateDer<'_>) -> Result<String, String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok();
    match certificate.and_then(|certificate| text(certificate.subject())) {
        None => Err("its subject is damaged".into()),
        Some(text) if text.is_empty() => Err("its subject is empty".into()),
        Some(text) if text.len() > SUBJECT_BYTES_MAX => {
            Err(format!("its subject has {} bytes, and may have {SUBJECT_BYTES_MAX}", text.len()))
        }
        Some(text) => Ok(text),
    }
}

/// Returns the subject of the first certificate in a PEM file.
///
/// # Errors
/// [`Error`] when the file cannot be read, or its first certificate has no usable subject.
pub fn subject_in(file: &Path) -> Result<String, Error> {
    let pem = PemFile::read(file)?;
    of(&pem.certificates()?[0]).map_err(|reason| pem.unusable(reason))
}

/// Converts the content of an RDNSequence (the DER form of a subject) to text; `None` when it is
/// damaged.
fn text(mut names: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !names.is_empty() {
        let (set, rest) = take(names, SET)?;
        parts.push(one_name(set)?);
        names = rest;
    }
    parts.reverse();
    Some(parts.join(","))
}

/// Converts one relative distinguished name to text. It has one attribute or, rarely, several,
/// which are joined by `+`.
fn one_name(mut set: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !set.is_empty() {
        let (attribute, rest) = take(set, SEQUENCE)?;
        let (kind, value) = take(attribute, OBJECT_IDENTIFIER)?;
        let word = WORDS.iter().find(|(bytes, _)| *bytes == kind).map(|(_, word)| *word);
        parts.push(match (word, string(value)?) {
            (Some(word), Some(value)) => format!("{word}={}", escaped(&value)),
            (word, _) => format!("{}=#{}", word.map_or_else(|| numbers(kind), |word| Some(word.into()))?, hex(value)),
        });
        set = rest;
    }
    Some(parts.join("+"))
}

/// Decodes an attribute's value as a string. The inner `None` stands for a type that is not a
/// string type, the outer `None` for damage.
#[expect(clippy::option_option, reason = "damaged and no string are not the same")]
fn string(value: &[u8]) -> Option<Option<String>> {
    let (tag, content, rest) = element(value)?;
    if !rest.is_empty() {
        return None;
    }
    Some(match tag {
        // UTF8String, PrintableString, IA5String, GeneralString.
        0x0c | 0x13 | 0x16 | 0x1b => Some(String::from_utf8(content.to_vec()).ok()?),
        // T61String, which all libraries read as Latin-1.
        0x14 => Some(content.iter().copied().map(char::from).collect()),
        // BMPString: two bytes each.
        0x1e => {
            if !content.len().is_multiple_of(2) {
                return None;
            }
            let units = content.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            Some(String::from_utf16(&units.collect::<Vec<_>>()).ok()?)
        }
        _ => None,
    })
}

/// Escapes a value: puts a backslash before special characters of RFC 2253, and before spaces at
/// the beginning or end.
fn escaped(value: &str) -> String {
    let plain = value.trim_matches([' ', '\r']);
    let lead = value.len() - value.trim_start_matches([' ', '\r']).len();
    let mut text = String::with_capacity(value.len());
    for (at, c) in value.char_indices() {
        let blank_at_an_end = at < lead || at >= lead + plain.len();
        match c {
            '\0' => text.push_str("\\00"),
            ',' | '=' | '+' | '<' | '>' | '#' | ';' | '"' | '\\' => text.extend(['\\', c]),
            c if blank_at_an_end => text.extend(['\\', c]),
            c => text.push(c),
        }
    }
    text
}

/// Converts an object identifier to dotted numbers; `None` when it is damaged.
fn numbers(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    let (mut number, mut open) = (0_u64, false);
    for byte in bytes {
        number = number.checked_mul(128)?.checked_add(u64::from(byte & 0x7f))?;
        open = byte & 0x80 != 0;
        if !open {
            // The first two numbers share one encoded number.
            let first = (number / 40).min(2);
            match text.is_empty() {
                true => write!(text, "{first}.{}", number - first * 40).ok()?,
                false => write!(text, ".{number}").ok()?,
            }
            number = 0;
        }
    }
    (!open && !text.is_empty()).then_some(text)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|index| u8::from_str_radix(&hex[index..index + 2], 16).unwrap()).collect()
    }

    /// Compares with Java (OpenJDK 17): `encoded` is the result of `X500Principal.getEncoded()`,
    /// `expected` that of `getName()`.
    #[track_caller]
    fn check(encoded: &str, expected: &str) {
        let encoded = bytes(encoded);
        let (names, rest) = take(&encoded, SEQUENCE).unwrap();
        assert_eq!((text(names).as_deref(), rest), (Some(expected), &[][..]));
    }

    #[test]
    fn subjects_are_written_as_java_writes_them() {
        check(
            "3034310b300906035504061302444531143012060355040a130b4578616d706c65204f7267310f300d06035504031306636c69656e74",
            "CN=client,O=Example Org,C=DE",
        );
        check(
            "30818831133011060a0992268993f22c6401191603636f6d310a3008060355040913017a310a30080603550407130179310a300806\
             0355040813017831193017060355040a1310206c65616420616e6420747261696c20310c300a060355040b1303613d623124301006\
             035504031309446f652c204a6f686e3010060a0992268993f22c64010113026a64",
            r"CN=Doe\, John+UID=jd,OU=a\=b,O=\ lead and trail\ ,ST=x,L=y,STREET=z,DC=com",
        );
        check(
            "3032310a30080603550405130137310e300c06035504030c0523686173683114301206092a864886f70d01090116056140622e63",
            r"1.2.840.113549.1.9.1=#16056140622e63,CN=\#hash,2.5.4.5=#130137",
        );
        check("301a3118301606035504030c0f613b623c633e645c6522662b672368", r#"CN=a\;b\<c\>d\\e\"f\+g\#h"#);
        check("3025310d300b060355040b0c042a5f267c3114301206035504030c0b4772c3bcc39f652fe6bca2", "CN=Grüße/漢,OU=*_&|");
        check(
            "3028310d300b0603550403130478202079310a3008060355042a130167310b3009060355040c13024472",
            "2.5.4.12=#13024472,2.5.4.42=#130167,CN=x  y",
        );
        check("300b3109300706035504031300", "CN=");
        check("30133111300f06035504030c0874616209206e756c", "CN=tab\t nul");
    }

    /// Returns a self-signed certificate with the subject `CN=name`; with an empty subject if
    /// `name` is empty.
    fn certificate(name: &str) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !name.is_empty() {
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
        }
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_that_is_nobodies_says_why() {
        let of = |der: Vec<u8>| of(&CertificateDer::from(der));
        assert_eq!(of(certificate("worker")), Ok("CN=worker".into()));
        let longest = "n".repeat(SUBJECT_BYTES_MAX - "CN=".len());
        assert_eq!(of(certificate(&longest)).map(|subject| subject.len()), Ok(SUBJECT_BYTES_MAX));
        assert_eq!(of(certificate(&(longest + "n"))), Err("its subject has 1025 bytes, and may have 1024".into()));
        assert_eq!(of(certificate("")), Err("its subject is empty".into()));
        let mut damaged = certificate("worker");
        let starts: Vec<_> = (0..damaged.len()).filter(|at| damaged[*at..].starts_with(b"worker")).collect();
        starts.into_iter().for_each(|at| damaged[at] = 0xff);
        assert_eq!(of(damaged), Err("its subject is damaged".into()));
        assert_eq!(of(vec![0x30, 0]), Err("its subject is damaged".into()));
    }

    #[test]
    fn damaged_subjects_are_nobodies_and_never_panic() {
        let whole = bytes("3118301606035504030c0f613b623c633e645c6522662b672368");
        assert!(text(&whole).is_some());
        for length in 1..whole.len() {
            assert_eq!(text(&whole[..length]), None, "{length} bytes");
        }
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut damaged = whole.clone();
                damaged[at] = value;
                let _ = text(&damaged);
            }
        }
        assert_eq!(text(&bytes("3184ffffffff")), None);
        assert_eq!(text(&bytes("310d300b06035504031e0400410042")).as_deref(), Some("CN=AB"));
        assert_eq!(text(&bytes("310e300c06035504031e050041004200")), None, "half a character more");
        assert_eq!(numbers(&[0x86]), None);
        assert_eq!(numbers(&[0xff; 20]), None);
    }
}
