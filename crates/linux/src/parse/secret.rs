//! What must not leave the machine in a report: values of names that look like credentials.

/// What stands in the place of a masked value.
const MASK: &str = "***";

/// Whether a parameter of this name may hold a credential.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // A keyboard layout is no key.
    if name.contains("keymap") || name.contains("keyboard") || name.contains("keytable") {
        return false;
    }
    ["password", "passwd", "passphrase", "token", "key", "secret", "credential"]
        .iter()
        .any(|word| name.contains(word))
}

/// `name=value` with the value masked where the name looks like one of a credential, and
/// `scheme://user:password@host` without the user. A masked parameter stays as it is.
pub fn mask_parameter(word: &str) -> String {
    // Who signs in goes first: that may hold a sign of equality, behind which another name begins.
    let word = mask_login(word);
    match word.split_once('=') {
        Some((name, value)) if is_secret(name) && !value.is_empty() => format!("{name}={MASK}"),
        _ => word,
    }
}

fn mask_login(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let host_end = rest.find('/').unwrap_or(rest.len());
    match rest[..host_end].rfind('@') {
        Some(at) if rest[..at].contains(':') => format!("{scheme}://{MASK}:{MASK}{}", &rest[at..]),
        _ => word.to_owned(),
    }
}

/// The arguments of a process with `--token=VALUE`, `TOKEN=VALUE` and `--token VALUE` masked.
pub fn mask_arguments<'a>(arguments: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut masked = Vec::new();
    let mut next_is_secret = false;
    for argument in arguments {
        let is_option = argument.starts_with('-');
        if next_is_secret && !is_option && !argument.is_empty() {
            masked.push(MASK.to_owned());
        } else {
            masked.push(mask_parameter(argument));
        }
        next_is_secret = is_option && !argument.contains('=') && is_secret(argument);
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_masked_and_nothing_else() {
        for (word, masked) in [
            ("rd.luks.key=/x", "rd.luks.key=***"),
            ("root%=x:@/key=secret", "root%=x:@/key=secret"),
            ("p=a://b=c:d@/key=secret", "p=a://***:***@/key=secret"),
            ("a://b=c:d@/key=secret", "a://***:***@/key=***"),
            ("systemd.set_credential=a:b", "systemd.set_credential=***"),
            ("MY_PASSWORD=hunter2", "MY_PASSWORD=***"),
            ("isolcpus=2-3", "isolcpus=2-3"),
            ("vconsole.keymap=de", "vconsole.keymap=de"),
            ("token", "token"),
            ("root=/dev/sda", "root=/dev/sda"),
            ("url=http://me:pw@host/a@b", "url=http://***:***@host/a@b"),
            ("http://host/a:b@c", "http://host/a:b@c"),
        ] {
            assert_eq!(mask_parameter(word), masked);
            assert_eq!(mask_parameter(&mask_parameter(word)), masked);
        }
        let arguments = ["mpd", "--api-token", "abc", "--secret=x", "--no-key", "--quiet", "file"];
        assert_eq!(
            mask_arguments(arguments.into_iter()),
            ["mpd", "--api-token", "***", "--secret=***", "--no-key", "--quiet", "file"]
        );
    }
}
