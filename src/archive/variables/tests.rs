//! Which settings of a store are refused, with what advice.

use super::*;
use crate::archive::StoreUrl;

/// In every value that must not be shown.
const SECRET: &str = "s3cr3t";

fn check(url: &str, variables: &[(&str, &str)]) -> Result<(), Vec<String>> {
    let variables = variables.iter().copied().collect();
    StoreUrl::parse(url).unwrap().check(&variables)
}

const S3: &str = "s3://bucket/prefix";
const GOOGLE: &str = "gs://bucket/prefix";
const AZURE: &str = "az://container/prefix";
const ACCOUNT: (&str, &str) = ("AZURE_STORAGE_ACCOUNT_NAME", "account");

#[test]
fn settings_that_work_are_taken() {
    let key = ("AWS_ACCESS_KEY_ID", "id");
    let secret = ("AWS_SECRET_ACCESS_KEY", "a/b+c=");
    for (url, variables) in [
        (S3, &[][..]),
        (
            S3,
            &[
                key,
                secret,
                ("AWS_ENDPOINT_URL", "http://minio.example:9000"),
            ],
        ),
        (
            S3,
            &[
                key,
                secret,
                ("AWS_ENDPOINT_URL", "https://s3.example/path/"),
                ("AWS_REGION", "auto"),
            ],
        ),
        (S3, &[("AWS_ENDPOINT_URL", "http://[::1]:9000")]),
        // Empty ones count as unset, and what the client does not know is others' business.
        (
            S3,
            &[
                ("AWS_ENDPOINT_URL", ""),
                ("AWS_REGION", ""),
                ("AWS_ACCESS_KEY_ID", ""),
            ],
        ),
        (S3, &[("AWS_PROFILE", "work"), ("AWS_PAGER", "\n")]),
        // Those of another cloud are too.
        (S3, &[("AZURE_STORAGE_ENDPOINT", "nonsense")]),
        (S3, &[("AWS_TIMEOUT", "20s"), ("AWS_ALLOW_HTTP", "TRUE")]),
        (
            S3,
            &[
                ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
                ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
            ],
        ),
        (GOOGLE, &[]),
        (AZURE, &[ACCOUNT]),
        (AZURE, &[("AZURE_STORAGE_USE_EMULATOR", "true")]),
        (AZURE, &[ACCOUNT, ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")]),
        (
            AZURE,
            &[
                ACCOUNT,
                ("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:20000/account"),
            ],
        ),
        (
            AZURE,
            &[
                ACCOUNT,
                ("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com/"),
            ],
        ),
    ] {
        assert_eq!(check(url, variables), Ok(()), "{url} {variables:?}");
    }
    let nothing = Variables::default();
    for url in ["file:///tmp/store", "memory:///"] {
        assert_eq!(StoreUrl::parse(url).unwrap().check(&nothing), Ok(()));
    }
}

/// A store, its variables, the one that is wrong, and what is said of it.
type Mistake = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
);

const HALF_A_KEY: &str = r#"{"private_key":"s3cr3t""#;

const MISTAKES: &[Mistake] = &[
    // What object_store panics on: `ls` ended with 101, and uploads with nothing at all.
    (
        S3,
        &[("AWS_ENDPOINT_URL", "minio.example:9000")],
        "AWS_ENDPOINT_URL",
        "http://minio.example:9000",
    ),
    (
        S3,
        &[("AWS_ENDPOINT", "localhost")],
        "AWS_ENDPOINT",
        "no scheme",
    ),
    (
        S3,
        &[("AWS_ENDPOINT_URL_S3", "ftp://host")],
        "AWS_ENDPOINT_URL_S3",
        "neither http://",
    ),
    (
        S3,
        &[("AWS_ENDPOINT_URL", "http://")],
        "AWS_ENDPOINT_URL",
        "not a URL",
    ),
    (
        S3,
        &[("AWS_ENDPOINT_URL", "http:///bucket")],
        "AWS_ENDPOINT_URL",
        "no host",
    ),
    (
        S3,
        &[("AWS_ENDPOINT_URL", "http://host:port")],
        "AWS_ENDPOINT_URL",
        "not a URL",
    ),
    (
        S3,
        &[("AWS_ENDPOINT_URL", " http://host")],
        "AWS_ENDPOINT_URL",
        "spaces",
    ),
    (
        S3,
        &[("AWS_ENDPOINT_URL", "http://host\n")],
        "AWS_ENDPOINT_URL",
        "line breaks",
    ),
    (
        S3,
        &[("AWS_ENDPOINT_URL", "http://me:s3cr3t@host")],
        "AWS_ENDPOINT_URL",
        "password",
    ),
    (
        S3,
        &[("AWS_ENDPOINT_URL", "http://host?key=s3cr3t")],
        "AWS_ENDPOINT_URL",
        "remove what follows",
    ),
    (
        S3,
        &[("AWS_ENDPOINT_URL_STS", "sts.example")],
        "AWS_ENDPOINT_URL_STS",
        "no scheme",
    ),
    (
        S3,
        &[("AWS_REGION", "\"eu-central-1\"")],
        "AWS_REGION",
        "quotes",
    ),
    (
        S3,
        &[("AWS_DEFAULT_REGION", "eu-central-1\n")],
        "AWS_DEFAULT_REGION",
        "letters",
    ),
    (
        S3,
        &[
            ("AWS_ACCESS_KEY_ID", "id\n"),
            ("AWS_SECRET_ACCESS_KEY", "s3cr3t"),
        ],
        "AWS_ACCESS_KEY_ID",
        "line break",
    ),
    (
        S3,
        &[
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "s3cr3t\n"),
        ],
        "AWS_SECRET_ACCESS_KEY",
        "line break",
    ),
    (
        S3,
        &[("AWS_SESSION_TOKEN", "s3cr3t ü")],
        "AWS_SESSION_TOKEN",
        "character",
    ),
    (
        S3,
        &[("AWS_ACCESS_KEY_ID", "id")],
        "AWS_SECRET_ACCESS_KEY",
        "not set",
    ),
    (
        S3,
        &[("AWS_SECRET_ACCESS_KEY", SECRET)],
        "AWS_ACCESS_KEY_ID",
        "not set",
    ),
    (
        S3,
        &[("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "maybe")],
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
        "maybe",
    ),
    (S3, &[("AWS_TIMEOUT", "soon")], "AWS_TIMEOUT", "soon"),
    (
        S3,
        &[("AWS_SERVER_SIDE_ENCRYPTION", "rot13")],
        "AWS_SERVER_SIDE_ENCRYPTION",
        "rot13",
    ),
    (
        S3,
        &[("AWS_CHECKSUM_ALGORITHM", "crc1")],
        "AWS_CHECKSUM_ALGORITHM",
        "crc1",
    ),
    (
        S3,
        &[("AWS_PROXY_URL", "http://me:s3cr3t@[")],
        "AWS_PROXY_URL",
        "can't read",
    ),
    (
        GOOGLE,
        &[("GOOGLE_BASE_URL", "storage.example")],
        "GOOGLE_BASE_URL",
        "no scheme",
    ),
    (
        GOOGLE,
        &[("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file")],
        "GOOGLE_APPLICATION_CREDENTIALS",
        "/no/such/file",
    ),
    (
        GOOGLE,
        &[("GOOGLE_SERVICE_ACCOUNT_KEY", HALF_A_KEY)],
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "can't read",
    ),
    (AZURE, &[], "AZURE_STORAGE_ACCOUNT_NAME", "not set"),
    (
        AZURE,
        &[ACCOUNT, ("AZURE_STORAGE_ENDPOINT", "127.0.0.1:10000")],
        "AZURE_STORAGE_ENDPOINT",
        "no scheme",
    ),
    (
        AZURE,
        &[ACCOUNT, ("AZURE_STORAGE_ACCOUNT_KEY", "s3cr3t!")],
        "AZURE_STORAGE_ACCOUNT_KEY",
        "can't read",
    ),
    (
        AZURE,
        &[ACCOUNT, ("AZURE_STORAGE_SAS_TOKEN", "s3cr3t")],
        "AZURE_STORAGE_SAS_TOKEN",
        "can't read",
    ),
    (
        AZURE,
        &[("AZURE_STORAGE_ACCOUNT_NAME", "my account")],
        "AZURE_STORAGE_ACCOUNT_NAME",
        "letters",
    ),
    (
        AZURE,
        &[ACCOUNT, ("IDENTITY_ENDPOINT", "localhost")],
        "IDENTITY_ENDPOINT",
        "no scheme",
    ),
];

#[test]
fn settings_that_can_not_work_are_named_with_what_to_do() {
    for (url, variables, name, hint) in MISTAKES {
        let mistakes = check(url, variables).unwrap_err();
        let [mistake] = mistakes.as_slice() else {
            panic!("{variables:?}: {mistakes:?}");
        };
        let found = mistake
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(": "));
        let what = found.unwrap_or_else(|| panic!("{name}: {mistake}"));
        assert!(what.contains(hint), "{mistake}");
        assert!(!mistake.contains(SECRET), "{mistake}");
    }
    let twice = [
        ("AWS_ENDPOINT_URL", "minio.example:9000"),
        ("AWS_REGION", "eu central"),
    ];
    assert_eq!(check(S3, &twice).unwrap_err().len(), 2);
}

#[test]
fn no_value_is_shown() {
    let variables: Variables = [("AWS_SECRET_ACCESS_KEY", SECRET)].into_iter().collect();
    assert_eq!(format!("{variables:?}"), "{\"AWS_SECRET_ACCESS_KEY\"}");
}
