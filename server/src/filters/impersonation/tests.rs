use super::impersonated_user::{GROUP, UID, USER};
use super::*;
use api::Map;
use http::{HeaderMap, HeaderName};

type HeaderList<'a> = &'a [(&'static str, &'a str)];

fn requested(given: HeaderList<'_>) -> Result<Option<ImpersonatedUser>, Status> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        headers.append(HeaderName::from_static(name), value.parse().expect("a value"));
    }
    let requested = ImpersonatedUser::take(&mut headers);
    if requested.as_ref().is_ok_and(Option::is_some) {
        assert!(headers.keys().all(|name| !name.as_str().starts_with("impersonate-")));
    }
    requested
}

#[test]
fn requires_a_user_name() {
    assert_eq!(requested(&[("accept", "x")]).expect("nothing"), None);
    let cases: [(HeaderList<'_>, &str); 3] = [
        (&[(GROUP, "devs")], r#"Name:"", UID:"", Groups:[]string{"devs"}, Extra:map[string][]string(nil)}"#),
        (&[(UID, "u")], r#"Name:"", UID:"u", Groups:[]string(nil), Extra:map[string][]string(nil)}"#),
        (
            &[("impersonate-extra-a", "x"), (USER, "")],
            r#"Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"x"}}}"#,
        ),
    ];
    for (given, want) in cases {
        let status = requested(given).expect_err("a refusal");
        let text = format!("requested &user.DefaultInfo{{{want} without impersonating a user name");
        assert_eq!((status.code, status.message.as_str()), (400, text.as_str()));
    }
}

#[test]
fn identities_get_the_groups_of_their_nature() {
    let cases: [(HeaderList<'_>, &str); 6] = [
        (&[(USER, "jane")], "system:authenticated"),
        (&[(USER, "jane"), (GROUP, "devs")], "devs system:authenticated"),
        (&[(USER, "jane"), (GROUP, UNAUTHENTICATED)], UNAUTHENTICATED),
        (&[(USER, "system:anonymous")], UNAUTHENTICATED),
        (
            &[(USER, "system:serviceaccount:n:a")],
            "system:serviceaccounts system:serviceaccounts:n system:authenticated",
        ),
        (&[(USER, "system:node:a")], "system:nodes system:authenticated"),
    ];
    for (given, want) in cases {
        let requested = requested(given).expect("headers").expect("an impersonated user");
        assert_eq!(actual(&MODES[1], &requested).groups.join(" "), want, "{given:?}");
    }
}

/// The checks of a mode, each as `verb group/resource/subresource namespace name`.
fn checks(mode: &Mode, requested: &ImpersonatedUser) -> Vec<String> {
    let mut checks = Vec::new();
    let refused = mode.checks(requested, &mut checks);
    let show = |check: Check| {
        let Check { verb, group, resource, subresource, namespace, name, .. } = check;
        format!("{verb} {group}/{resource}/{subresource} {namespace} {name}")
    };
    checks.into_iter().map(show).chain(refused.map(|(_, why)| why)).collect()
}

#[test]
fn every_part_is_checked() {
    let given = [(USER, "jane"), (UID, "7"), (GROUP, "devs"), ("impersonate-extra-acme.com%2fp", "x")];
    let requested = requested(&given).expect("headers").expect("an impersonated user");
    assert_eq!(
        checks(&MODES[4], &requested),
        [
            "impersonate /users/  jane",
            "impersonate authentication.k8s.io/uids/  7",
            "impersonate /groups/  devs",
            "impersonate authentication.k8s.io/userextras/acme.com/p  x",
        ]
    );
    assert_eq!(checks(&MODES[3], &requested)[2], "impersonate:user-info authentication.k8s.io/groups/  devs");
}

#[test]
fn modes_apply_to_their_own() {
    let agent = {
        let mut extra = Map::new();
        extra.insert(NODE_NAME, api::list!["a"]);
        User { name: "system:serviceaccount:n:agent".to_string(), extra, ..User::default() }
    };
    let nobody = User::default();
    let cases: [(HeaderList<'_>, &User, &str); 6] = [
        (&[(USER, "jane")], &nobody, "user-info,"),
        (&[(USER, "system:node:a")], &nobody, "arbitrary-node,"),
        (&[(USER, "system:node:a")], &agent, "associated-node,arbitrary-node,"),
        (&[(USER, "system:node:b")], &agent, "arbitrary-node,"),
        (&[(USER, "system:node:a"), (GROUP, "g")], &agent, ""),
        (&[(USER, "system:serviceaccount:n:a")], &nobody, "serviceaccount,"),
    ];
    for (given, requestor, want) in cases {
        let requested = requested(given).expect("headers").expect("an impersonated user");
        let names = MODES.iter().filter(|mode| (mode.applies)(&requested, requestor)).map(|mode| mode.name);
        assert_eq!(names.collect::<Vec<_>>().join(","), want, "{given:?}");
    }
}

#[test]
fn constrained_modes_refuse_what_was_never_meant() {
    let masters =
        requested(&[(USER, "jane"), (GROUP, "system:masters")]).expect("headers").expect("an impersonated user");
    let last = |mode: &Mode, requested: &ImpersonatedUser| checks(mode, requested).pop().unwrap_or_default();
    assert_eq!(last(&MODES[3], &masters), "impersonating the system:masters group is not allowed");
    assert_eq!(last(&MODES[4], &masters), "impersonate /groups/  system:masters");
    let extra = requested(&[(USER, "jane"), ("impersonate-extra-scopes", "view")])
        .expect("headers")
        .expect("an impersonated user");
    assert!(last(&MODES[3], &extra).contains("invalid key in extra"));
}
