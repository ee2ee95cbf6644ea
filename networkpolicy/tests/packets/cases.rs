//! Policies, and sets of policies: each line is a namespace and a spec. The pods of x have the addresses 2 to 4, those of y
//! 5 to 7 and those of z 8 to 10.

pub const CASES: &[(&str, &str)] = &[
    ("no policy", ""),
    // Isolation by direction.
    ("deny ingress", "x {podSelector: {}, policyTypes: [Ingress]}"),
    ("deny ingress by default types", "x {podSelector: {}}"),
    ("deny ingress without a selector", "x {policyTypes: [Ingress]}"),
    ("deny egress", "x {podSelector: {}, policyTypes: [Egress]}"),
    ("deny both", "x {podSelector: {}, policyTypes: [Ingress, Egress]}"),
    ("deny ingress of one pod", "x {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress]}"),
    ("deny egress of one pod", "x {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress]}"),
    ("a selector without pods", "x {podSelector: {matchLabels: {pod: d}}, policyTypes: [Ingress, Egress]}"),
    ("egress rules with ingress type only", "x {podSelector: {}, policyTypes: [Ingress], egress: [{}]}"),
    ("ingress rules with egress type only", "x {podSelector: {}, policyTypes: [Egress], ingress: [{}]}"),
    ("egress rules imply both types", "x {podSelector: {}, egress: [{to: [{podSelector: {}}]}]}"),
    // Empty rules.
    ("empty ingress list", "x {podSelector: {}, ingress: []}"),
    ("an empty ingress rule", "x {podSelector: {}, ingress: [{}]}"),
    ("empty from", "x {podSelector: {}, ingress: [{from: []}]}"),
    ("empty from and ports", "x {podSelector: {}, ingress: [{from: [], ports: []}]}"),
    ("an empty egress rule", "x {podSelector: {}, policyTypes: [Egress], egress: [{}]}"),
    ("empty egress list", "x {podSelector: {}, policyTypes: [Egress], egress: []}"),
    // Pod selectors.
    ("from a pod of the namespace", "x {podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}"),
    ("from all pods of the namespace", "x {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}"),
    (
        "to a pod of the namespace",
        "x {podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {pod: b}}}]}]}",
    ),
    (
        "pods by In",
        "x {podSelector: {matchExpressions: [{key: pod, operator: In, values: [a, b]}]}, ingress: [{from: [{podSelector: {matchLabels: {pod: c}}}]}]}",
    ),
    (
        "pods by NotIn",
        "x {podSelector: {matchExpressions: [{key: pod, operator: NotIn, values: [a]}]}, policyTypes: [Ingress, Egress]}",
    ),
    ("pods by Exists", "x {podSelector: {matchExpressions: [{key: tier, operator: Exists}]}, policyTypes: [Ingress]}"),
    (
        "pods by DoesNotExist",
        "x {podSelector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}, policyTypes: [Ingress]}",
    ),
    (
        "labels and expressions",
        "x {podSelector: {matchLabels: {tier: back}, matchExpressions: [{key: pod, operator: NotIn, values: [b]}]}, policyTypes: [Ingress]}",
    ),
    (
        "peers by expressions",
        "x {podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: pod, operator: NotIn, values: [a]}]}}]}]}",
    ),
    // Namespace selectors.
    ("from a namespace", r#"x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}]}]}"#),
    ("from all namespaces", "x {podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}"),
    (
        "from a namespace by its name",
        r#"x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: z}}}]}]}"#,
    ),
    (
        "from namespaces without a label",
        "x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}]}]}",
    ),
    (
        "from other namespaces",
        "x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}}]}]}",
    ),
    (
        "to a team",
        "x {podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {team: one}}}]}]}",
    ),
    (
        "both selectors of one peer",
        r#"x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}, podSelector: {matchLabels: {pod: a}}}]}]}"#,
    ),
    (
        "both selectors as two peers",
        r#"x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}, {podSelector: {matchLabels: {pod: a}}}]}]}"#,
    ),
    (
        "both selectors of all namespaces",
        "x {podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {tier: front}}}]}]}",
    ),
    (
        "to both selectors",
        "x {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: z}}, podSelector: {matchLabels: {tier: back}}}]}]}",
    ),
    (
        "a namespace that does not exist",
        "x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: w}}}]}]}",
    ),
    // Address blocks.
    ("from a block", "x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.244.7.4/30}}]}]}"),
    ("from one address", "x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.244.7.5/32}}]}]}"),
    ("from all of IPv4", "x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}"),
    ("from all of IPv6", r#"x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "::/0"}}]}]}"#),
    (
        "a block with exceptions",
        "x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.244.7.0/24, except: [10.244.7.4/31, 10.244.7.8/32]}}]}]}",
    ),
    (
        "IPv6 with exceptions",
        r#"x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: "fd00:244:7::/64", except: ["fd00:244:7::4/127", "fd00:244:7::8/128"]}}]}]}"#,
    ),
    (
        "an exception that another block allows",
        "x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.244.7.0/24, except: [10.244.7.4/30]}}, {ipBlock: {cidr: 10.244.7.5/32}}]}]}",
    ),
    (
        "to a block with exceptions",
        r#"x {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.244.0.0/16, except: [10.244.7.6/31]}}, {ipBlock: {cidr: "fd00:244:7::8/125"}}]}]}"#,
    ),
    (
        "blocks and pods",
        r#"x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.244.7.8/32}}, {podSelector: {}}, {namespaceSelector: {matchLabels: {ns: "y"}}, podSelector: {matchLabels: {pod: b}}}]}]}"#,
    ),
    // Ports.
    ("a port", "x {podSelector: {}, ingress: [{ports: [{protocol: TCP, port: 80}]}]}"),
    ("a port without a protocol", "x {podSelector: {}, ingress: [{ports: [{port: 81}]}]}"),
    ("a UDP port", "x {podSelector: {}, ingress: [{ports: [{protocol: UDP, port: 80}]}]}"),
    ("an SCTP port", "x {podSelector: {}, ingress: [{ports: [{protocol: SCTP, port: 80}]}]}"),
    ("a protocol", "x {podSelector: {}, ingress: [{ports: [{protocol: UDP}]}]}"),
    ("a port without anything", "x {podSelector: {}, ingress: [{ports: [{}]}]}"),
    ("a range of ports", "x {podSelector: {}, ingress: [{ports: [{protocol: TCP, port: 81, endPort: 90}]}]}"),
    ("a range of one port", "x {podSelector: {}, ingress: [{ports: [{protocol: TCP, port: 81, endPort: 81}]}]}"),
    ("a range that ends at a port", "x {podSelector: {}, ingress: [{ports: [{protocol: UDP, port: 1, endPort: 81}]}]}"),
    (
        "all ports of both protocols as ranges",
        "x {podSelector: {}, ingress: [{ports: [{port: 1, endPort: 65535}, {protocol: UDP, port: 1, endPort: 65535}]}]}",
    ),
    (
        "several ports",
        "x {podSelector: {}, ingress: [{ports: [{port: 80}, {protocol: UDP, port: 81}, {protocol: TCP, port: 82}]}]}",
    ),
    ("egress to a port", "x {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{protocol: UDP, port: 80}]}]}"),
    (
        "egress to a range",
        "x {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{protocol: UDP, port: 80, endPort: 81}]}]}",
    ),
    // Named ports.
    ("a named port that differs by pod", "x {podSelector: {}, ingress: [{ports: [{port: web}]}]}"),
    ("a named UDP port", "x {podSelector: {}, ingress: [{ports: [{protocol: UDP, port: dns}]}]}"),
    ("a name with the other protocol", "x {podSelector: {}, ingress: [{ports: [{protocol: UDP, port: web}]}]}"),
    ("a name that only one pod has", "x {podSelector: {}, ingress: [{ports: [{port: alt}]}]}"),
    ("a name that no pod has", "x {podSelector: {}, ingress: [{ports: [{port: nothing}]}]}"),
    (
        "one name for two protocols",
        "x {podSelector: {}, ingress: [{ports: [{port: both}, {protocol: UDP, port: both}]}]}",
    ),
    (
        "egress to named ports of all pods",
        "x {podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: web}]}]}",
    ),
    (
        "egress to named ports of peers",
        r#"x {podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: "y"}}}], ports: [{port: web}, {protocol: UDP, port: dns}]}]}"#,
    ),
    (
        "egress to named ports in a block",
        "x {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.244.7.4/30, except: [10.244.7.5/32]}}], ports: [{port: web}]}]}",
    ),
    (
        "named and numbered ports",
        "x {podSelector: {matchLabels: {tier: back}}, ingress: [{from: [{podSelector: {}}], ports: [{port: web}, {port: 80}]}]}",
    ),
    // Peers and ports together.
    (
        "a peer at a port",
        r#"x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}], ports: [{port: 80}]}]}"#,
    ),
    (
        "two rules",
        r#"x {podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}], ports: [{port: 80}]}, {from: [{podSelector: {}}], ports: [{port: 81}]}]}"#,
    ),
    (
        "a rule for all at one port, for some at all",
        "x {podSelector: {}, ingress: [{ports: [{port: 82}]}, {from: [{podSelector: {matchLabels: {pod: a}}}]}]}",
    ),
    (
        "a block at a port",
        "x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.244.7.0/29}}], ports: [{protocol: UDP, port: 81}]}]}",
    ),
    (
        "ingress and egress of one policy",
        r#"x {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}]}], egress: [{to: [{namespaceSelector: {matchLabels: {ns: z}}}], ports: [{port: 80}]}]}"#,
    ),
    // Several policies.
    (
        "policies are added up",
        r#"x {podSelector: {}, policyTypes: [Ingress]}
           x {podSelector: {matchLabels: {pod: a}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: "y"}}}]}]}
           x {podSelector: {matchLabels: {tier: front}}, ingress: [{ports: [{port: 81}]}]}"#,
    ),
    (
        "allow everything wins",
        "x {podSelector: {}, policyTypes: [Ingress, Egress]}
         x {podSelector: {}, ingress: [{}], egress: [{}]}",
    ),
    (
        "both sides have to allow",
        r#"x {podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: "y"}}}]}]}
           y {podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {pod: a}}}]}]}"#,
    ),
    (
        "all namespaces deny, one pair is allowed",
        r#"x {podSelector: {}, policyTypes: [Ingress, Egress]}
           y {podSelector: {}, policyTypes: [Ingress, Egress]}
           z {podSelector: {}, policyTypes: [Ingress, Egress]}
           x {podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {matchLabels: {ns: "y"}}, podSelector: {matchLabels: {pod: b}}}], ports: [{port: 80}, {protocol: UDP, port: 81}]}]}
           y {podSelector: {matchLabels: {pod: b}}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: x}}}]}]}"#,
    ),
    (
        "namespaces with policies of their own",
        r#"x {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}
           y {podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}
           z {podSelector: {}, ingress: [{ports: [{port: web}]}]}"#,
    ),
    (
        "pods with different policies",
        "x {podSelector: {matchLabels: {pod: a}}, ingress: [{ports: [{port: 80}]}]}
         x {podSelector: {matchLabels: {pod: b}}, ingress: [{ports: [{port: 81}]}]}
         x {podSelector: {matchLabels: {tier: back}}, ingress: [{ports: [{protocol: UDP}]}]}",
    ),
    (
        "egress to the namespace and DNS",
        r#"z {podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}, {to: [{namespaceSelector: {matchLabels: {ns: x}}, podSelector: {matchLabels: {pod: a}}}], ports: [{protocol: UDP, port: dns}]}]}"#,
    ),
    // A rule that cannot be read allows nothing, and leaves the rest in force.
    (
        "a rule that cannot be read",
        "x {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: nonsense}}]}, {ports: [{port: 80}]}]}",
    ),
];
