//! Volumes: a table of the sources with simple fields, and functions for the others.

use api::Tree;

use super::storage;
use super::values::{is_set, text, text_or, texts};
use super::writer::{Writer, put, shorten, text_of};

/// How a missing field is printed.
#[derive(Clone, Copy)]
enum Missing {
    Empty,
    False,
    Zero,
    Nil,
    EmptyList,
    EmptyMap,
    None,
    Unset,
}

use Missing::{Empty, EmptyList, EmptyMap, False, Nil, None, Unset, Zero};

struct Source {
    field: &'static str,
    title: &'static str,
    fields: &'static [(&'static str, &'static str, Missing)],
}

const FS: (&str, &str, Missing) = ("FSType:", "fsType", Empty);
const READ_ONLY: (&str, &str, Missing) = ("ReadOnly:", "readOnly", False);

/// In the order in which upstream looks for them.
const SOURCES: &[Source] = &[
    Source {
        field: "hostPath",
        title: "HostPath (bare host directory volume)",
        fields: &[("Path:", "path", Empty), ("HostPathType:", "type", None)],
    },
    Source {
        field: "emptyDir",
        title: "EmptyDir (a temporary directory that shares a pod's lifetime)",
        fields: &[("Medium:", "medium", Empty), ("SizeLimit:", "sizeLimit", Unset)],
    },
    Source {
        field: "gcePersistentDisk",
        title: "GCEPersistentDisk (a Persistent Disk resource in Google Compute Engine)",
        fields: &[("PDName:", "pdName", Empty), FS, ("Partition:", "partition", Zero), READ_ONLY],
    },
    Source {
        field: "awsElasticBlockStore",
        title: "AWSElasticBlockStore (a Persistent Disk resource in AWS)",
        fields: &[("VolumeID:", "volumeID", Empty), FS, ("Partition:", "partition", Zero), READ_ONLY],
    },
    Source {
        field: "gitRepo",
        title: "GitRepo (a volume that is pulled from git when the pod is created)",
        fields: &[("Repository:", "repository", Empty), ("Revision:", "revision", Empty)],
    },
    Source {
        field: "secret",
        title: "Secret (a volume populated by a Secret)",
        fields: &[("SecretName:", "secretName", Empty), ("Optional:", "optional", False)],
    },
    Source {
        field: "configMap",
        title: "ConfigMap (a volume populated by a ConfigMap)",
        fields: &[("Name:", "name", Empty), ("Optional:", "optional", False)],
    },
    Source {
        field: "nfs",
        title: "NFS (an NFS mount that lasts the lifetime of a pod)",
        fields: &[("Server:", "server", Empty), ("Path:", "path", Empty), READ_ONLY],
    },
    Source {
        field: "iscsi",
        title: "ISCSI (an ISCSI Disk resource that is attached to a kubelet's host machine and then exposed to the pod)",
        fields: &[
            ("TargetPortal:", "targetPortal", Empty),
            ("IQN:", "iqn", Empty),
            ("Lun:", "lun", Zero),
            ("ISCSIInterface", "iscsiInterface", Empty),
            FS,
            READ_ONLY,
            ("Portals:", "portals", EmptyList),
            ("DiscoveryCHAPAuth:", "chapAuthDiscovery", False),
            ("SessionCHAPAuth:", "chapAuthSession", False),
            ("SecretRef:", "secretRef", Nil),
            ("InitiatorName:", "initiatorName", None),
        ],
    },
    Source {
        field: "glusterfs",
        title: "Glusterfs (a Glusterfs mount on the host that shares a pod's lifetime)",
        fields: &[("EndpointsName:", "endpoints", Empty), ("Path:", "path", Empty), READ_ONLY],
    },
    Source {
        field: "persistentVolumeClaim",
        title: "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)",
        fields: &[("ClaimName:", "claimName", Empty), READ_ONLY],
    },
    Source {
        field: "rbd",
        title: "RBD (a Rados Block Device mount on the host that shares a pod's lifetime)",
        fields: &[
            ("CephMonitors:", "monitors", EmptyList),
            ("RBDImage:", "image", Empty),
            FS,
            ("RBDPool:", "pool", Empty),
            ("RadosUser:", "user", Empty),
            ("Keyring:", "keyring", Empty),
            ("SecretRef:", "secretRef", Nil),
            READ_ONLY,
        ],
    },
    Source {
        field: "quobyte",
        title: "Quobyte (a Quobyte mount on the host that shares a pod's lifetime)",
        fields: &[("Registry:", "registry", Empty), ("Volume:", "volume", Empty), READ_ONLY],
    },
    Source {
        field: "azureDisk",
        title: "AzureDisk (an Azure Data Disk mount on the host and bind mount to the pod)",
        fields: &[
            ("DiskName:", "diskName", Empty),
            ("DiskURI:", "diskURI", Empty),
            ("Kind: ", "kind", Empty),
            FS,
            ("CachingMode:", "cachingMode", Empty),
            READ_ONLY,
        ],
    },
    Source {
        field: "vsphereVolume",
        title: "vSphereVolume (a Persistent Disk resource in vSphere)",
        fields: &[("VolumePath:", "volumePath", Empty), FS, ("StoragePolicyName:", "storagePolicyName", Empty)],
    },
    Source {
        field: "cinder",
        title: "Cinder (a Persistent Disk resource in OpenStack)",
        fields: &[("VolumeID:", "volumeID", Empty), FS, READ_ONLY, ("SecretRef:", "secretRef", Nil)],
    },
    Source {
        field: "photonPersistentDisk",
        title: "PhotonPersistentDisk (a Persistent Disk resource in photon platform)",
        fields: &[("PdID:", "pdID", Empty), FS],
    },
    Source {
        field: "portworxVolume",
        title: "PortworxVolume (a Portworx Volume resource)",
        fields: &[("VolumeID:", "volumeID", Empty)],
    },
    Source {
        field: "scaleIO",
        title: "ScaleIO (a persistent volume backed by a block device in ScaleIO)",
        fields: &[
            ("Gateway:", "gateway", Empty),
            ("System:", "system", Empty),
            ("Protection Domain:", "protectionDomain", Empty),
            ("Storage Pool:", "storagePool", Empty),
            ("Storage Mode:", "storageMode", Empty),
            ("VolumeName:", "volumeName", Empty),
            FS,
            READ_ONLY,
        ],
    },
    Source {
        field: "local",
        title: "LocalVolume (a persistent volume backed by local storage on a node)",
        fields: &[("Path:", "path", Empty)],
    },
    Source {
        field: "cephfs",
        title: "CephFS (a CephFS mount on the host that shares a pod's lifetime)",
        fields: &[
            ("Monitors:", "monitors", EmptyList),
            ("Path:", "path", Empty),
            ("User:", "user", Empty),
            ("SecretFile:", "secretFile", Empty),
            ("SecretRef:", "secretRef", Nil),
            READ_ONLY,
        ],
    },
    Source {
        field: "storageos",
        title: "StorageOS (a StorageOS Persistent Disk resource)",
        fields: &[("VolumeName:", "volumeName", Empty), ("VolumeNamespace:", "volumeNamespace", Empty), FS, READ_ONLY],
    },
    Source {
        field: "azureFile",
        title: "AzureFile (an Azure File Service mount on the host and bind mount to the pod)",
        fields: &[("SecretName:", "secretName", Empty), ("ShareName:", "shareName", Empty), READ_ONLY],
    },
    Source {
        field: "flexVolume",
        title: "FlexVolume (a generic volume resource that is provisioned/attached using an exec based plugin)",
        fields: &[
            ("Driver:", "driver", Empty),
            FS,
            ("SecretRef:", "secretRef", Nil),
            READ_ONLY,
            ("Options:", "options", EmptyMap),
        ],
    },
    Source {
        field: "flocker",
        title: "Flocker (a Flocker volume mounted by the Flocker agent)",
        fields: &[("DatasetName:", "datasetName", Empty), ("DatasetUUID:", "datasetUUID", Empty)],
    },
    Source {
        field: "image",
        title: "Image (a container image or OCI artifact)",
        fields: &[("Reference:", "reference", Empty), ("PullPolicy:", "pullPolicy", Empty)],
    },
];

/// The volumes of a pod or of a template, whose lines begin with `before`.
pub(super) fn describe(w: &mut Writer, volumes: &[Tree], before: &str) {
    if volumes.is_empty() {
        return put!(w, 0, "{before}Volumes:\t<none>\n");
    }
    put!(w, 0, "{before}Volumes:\n");
    for volume in volumes {
        put!(w, 1, "{}{}:\n", if before.is_empty() { "" } else { " " }, volume.str("name"));
        source(w, volume);
    }
}

/// The source of a volume: the first field that is set.
pub(super) fn source(w: &mut Writer, volume: &Tree) {
    if let Some(source) = SOURCES.iter().find(|source| is_set(volume, source.field)) {
        return simple(w, source, volume.at(source.field));
    }
    if volume.has("ephemeral") {
        w.write(2, "Type:\tEphemeralVolume (an inline specification for a volume that gets created and deleted with the pod)\n");
        w.indent += 2;
        storage::claim(w, volume.at("ephemeral.volumeClaimTemplate"), false, 0);
        w.indent -= 2;
    } else if volume.has("downwardAPI") {
        downward(w, volume.at("downwardAPI"));
    } else if volume.has("fc") {
        fibre_channel(w, volume.at("fc"));
    } else if volume.has("projected") {
        projected(w, volume.at("projected"));
    } else if volume.has("csi") {
        csi(w, volume.at("csi"));
    } else {
        w.write(1, "<unknown>\n");
    }
}

fn simple(w: &mut Writer, source: &Source, value: &Tree) {
    put!(w, 2, "Type:\t{}\n", source.title);
    for (label, field, missing) in source.fields {
        let found = value.at(field);
        let shown = if found.is_null() {
            match missing {
                Empty => "",
                False => "false",
                Zero => "0",
                Nil => "nil",
                EmptyList => "[]",
                EmptyMap => "map[]",
                None => "<none>",
                Unset => "<unset>",
            }
            .to_string()
        } else if let Tree::Map(reference) = found
            && *field == "secretRef"
        {
            format!("&LocalObjectReference{{Name:{},}}", reference.str("name"))
        } else {
            text_of(found)
        };
        put!(w, 0, "    {label}\t{shown}\n");
    }
}

fn downward(w: &mut Writer, value: &Tree) {
    w.write(2, "Type:\tDownwardAPI (a volume populated by information about the pod)\n    Items:\n");
    for item in value.list("items") {
        for field in ["fieldRef.fieldPath", "resourceFieldRef.resource"] {
            if is_set(item, field) {
                put!(w, 3, "{} -> {}\n", text(item, field), item.str("path"));
            }
        }
    }
}

fn fibre_channel(w: &mut Writer, value: &Tree) {
    w.write(2, "Type:\tFC (a Fibre Channel disk)\n");
    put!(w, 0, "    TargetWWNs:\t{}\n", texts(value, "targetWWNs").join(", "));
    put!(w, 0, "    LUN:\t{}\n", text_or(value, "lun", "<none>"));
    put!(w, 0, "    FSType:\t{}\n    ReadOnly:\t{}\n", text(value, "fsType"), value.bool("readOnly"));
}

fn projected(w: &mut Writer, value: &Tree) {
    w.write(2, "Type:\tProjected (a volume that contains injected data from multiple sources)\n");
    for source in value.list("sources") {
        let optional = |field: &str| source.bool(&format!("{field}.optional"));
        if source.has("secret") {
            put!(w, 2, "SecretName:\t{}\n    Optional:\t{}\n", source.str("secret.name"), optional("secret"));
        } else if source.has("downwardAPI") {
            w.write(2, "DownwardAPI:\ttrue\n");
        } else if source.has("configMap") {
            put!(w, 2, "ConfigMapName:\t{}\n    Optional:\t{}\n", source.str("configMap.name"), optional("configMap"));
        } else if source.has("serviceAccountToken") {
            put!(w, 2, "TokenExpirationSeconds:\t{}\n", text(source, "serviceAccountToken.expirationSeconds"));
        }
    }
}

fn csi(w: &mut Writer, value: &Tree) {
    w.write(2, "Type:\tCSI (a Container Storage Interface (CSI) volume source)\n");
    put!(w, 0, "    Driver:\t{}\n    FSType:\t{}\n", value.str("driver"), text(value, "fsType"));
    if is_set(value, "volumeHandle") {
        put!(w, 0, "    VolumeHandle:\t{}\n", value.str("volumeHandle"));
    }
    put!(w, 0, "    ReadOnly:\t{}\n", value.bool("readOnly"));
    w.write(2, "VolumeAttributes:\t");
    let attributes = value.map("volumeAttributes");
    if attributes.is_empty() {
        return w.write(0, "<none>\n");
    }
    for (at, (key, value)) in attributes.iter().enumerate() {
        if at > 0 {
            w.write(2, "");
            w.write(2, "\t");
        }
        put!(w, 2, "{}\n", shorten(&format!("{key}={}", text_of(value)), super::writer::MAX_ANNOTATION));
    }
}
