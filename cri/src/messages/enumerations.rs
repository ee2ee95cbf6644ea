//! The values that CRI has names for.

enumerations! {
    Protocol { Tcp = 0, Udp = 1, Sctp = 2 }
    MountPropagation { Private = 0, HostToContainer = 1, Bidirectional = 2 }
    NamespaceMode { Pod = 0, Container = 1, Node = 2, Target = 3 }
    SupplementalGroupsPolicy { Merge = 0, Strict = 1 }
    ProfileType { RuntimeDefault = 0, Unconfined = 1, Localhost = 2 }
    PodSandboxState { Ready = 0, Notready = 1 }
    Signal {
        RuntimeDefault = 0, Sigabrt = 1, Sigalrm = 2, Sigbus = 3, Sigchld = 4, Sigcld = 5, Sigcont = 6, Sigfpe = 7,
        Sighup = 8, Sigill = 9, Sigint = 10, Sigio = 11, Sigiot = 12, Sigkill = 13, Sigpipe = 14, Sigpoll = 15,
        Sigprof = 16, Sigpwr = 17, Sigquit = 18, Sigsegv = 19, Sigstkflt = 20, Sigstop = 21, Sigsys = 22,
        Sigterm = 23, Sigtrap = 24, Sigtstp = 25, Sigttin = 26, Sigttou = 27, Sigurg = 28, Sigusr1 = 29,
        Sigusr2 = 30, Sigvtalrm = 31, Sigwinch = 32, Sigxcpu = 33, Sigxfsz = 34, Sigrtmin = 35, Sigrtminplus1 = 36,
        Sigrtminplus2 = 37, Sigrtminplus3 = 38, Sigrtminplus4 = 39, Sigrtminplus5 = 40, Sigrtminplus6 = 41,
        Sigrtminplus7 = 42, Sigrtminplus8 = 43, Sigrtminplus9 = 44, Sigrtminplus10 = 45, Sigrtminplus11 = 46,
        Sigrtminplus12 = 47, Sigrtminplus13 = 48, Sigrtminplus14 = 49, Sigrtminplus15 = 50, Sigrtmaxminus14 = 51,
        Sigrtmaxminus13 = 52, Sigrtmaxminus12 = 53, Sigrtmaxminus11 = 54, Sigrtmaxminus10 = 55, Sigrtmaxminus9 = 56,
        Sigrtmaxminus8 = 57, Sigrtmaxminus7 = 58, Sigrtmaxminus6 = 59, Sigrtmaxminus5 = 60, Sigrtmaxminus4 = 61,
        Sigrtmaxminus3 = 62, Sigrtmaxminus2 = 63, Sigrtmaxminus1 = 64, Sigrtmax = 65,
    }
    ContainerState { Created = 0, Running = 1, Exited = 2, Unknown = 3 }
    ContainerEventType { Created = 0, Started = 1, Stopped = 2, Deleted = 3 }
    MetricType { Counter = 0, Gauge = 1 }
    CgroupDriver { Systemd = 0, Cgroupfs = 1 }
}
