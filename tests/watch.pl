# Finds out when this machine kept a test from running. Used by tests/lib.sh.
#     watch.pl notes FILE PID          until the process PID ends, writes to FILE each time in which this process, with
#                                      its priority, got no processor for 50 ms or more: cpu, from, to; and each in
#                                      which the disk that holds FILE had requests and ended none for 50 ms: disk, from, to
#     watch.pl now PID                 prints a mark: the time, and the processor time of all, of PID with its
#                                      descendants, and of those with a low priority
#     watch.pl since FILE PID MARK     prints what kept PID from running since that mark; status 0: that explains a
#                                      late result
#     watch.pl calm SECONDS            waits for an undisturbed second, at most SECONDS
# It explains a late result if the processors or the disk stood still for 0.1 s and 1 % of the time, or others used a quarter
# of the processors or more. Others are also those with a low priority: in another session or group it takes little from
# them. Only the lowest one (SCHED_IDLE or 19), that of what runs beside the real tests in `make test`, does not count. It
# asks the kernel alone: the program under test has no say.
use strict;
use Time::HiRes qw(time sleep);
my $command = shift;
sub mark {
    my $root = shift;
    my (%parent, %used);
    my $lowest = 0;
    for my $dir (glob "/proc/[0-9]*") {
        open my $f, "<", "$dir/stat" or next;
        my $line = <$f> // next;
        my ($pid, $rest) = $line =~ /^(\d+) .*\) (.*)/ or next;
        my @field = split / /, $rest;
        $parent{$pid} = $field[1];
        $used{$pid} = $field[11] + $field[12] + $field[13] + $field[14]; # its own time, and that of children that have ended
        $lowest += $used{$pid} if $field[16] == 19 || $field[38] == 5; # nice; policy: SCHED_IDLE
    }
    my $ours = 0;
    for my $pid (keys %used) {
        my $p = $pid;
        $p = $parent{$p} while $p && $p != $root;
        $ours += $used{$pid} if $p;
    }
    open my $f, "<", "/proc/stat";
    my (undef, $user, $nice, $system, $idle, $io, @rest) = split " ", <$f>;
    my $busy = $user + $system;
    $busy += $_ for @rest[0 .. 2]; # interrupts, and the host's part
    return (time, $busy, $ours, $busy + $nice + $idle + $io, $nice, $lowest);
}
# Of two marks: the processor time of others, and all of it. When the last process of the lowest priority has ended, what it
# used is no longer seen: then those with a low one do not count.
sub others {
    my ($old, $now) = @_;
    my @d = map {$now->[$_] - $old->[$_]} 0 .. 5;
    my $low = $d[5] < 0 || $d[4] < $d[5] ? 0 : $d[4] - $d[5];
    return ($d[1] + $low - $d[2], $d[3]);
}
if ($command eq "notes") {
    my ($file, $pid) = @ARGV;
    my ($list) = do {open my $f, "<", "/proc/self/status"; map {/^Cpus_allowed_list:\s*(\S+)/} <$f>};
    my ($last_cpu, @others) = reverse map {my ($a, $b) = split /-/; $a .. $b // $a} split /,/, $list;
    my $cpu = $last_cpu;
    for (@others) { if (!fork) {$cpu = $_; last} }
    system "taskset -cp $cpu $$ >/dev/null 2>&1";
    open my $f, ">>", $file or die;
    # The kernel's counters of the disk: fields 1 and 5 are requests that have ended, field 9 those in flight.
    my $device = (stat $f)[6];
    my $disk = sprintf "/sys/dev/block/%d:%d/stat", $device >> 8 & 0xfff, $device & 0xff;
    my ($last, $ended, $moved) = (time, -1, time);
    while (kill 0, $pid) {
        sleep 0.01;
        my $now = time;
        syswrite $f, sprintf("cpu %.3f %.3f\n", $last, $now) if $now - $last > 0.05;
        if ($cpu == $last_cpu && open my $stat, "<", $disk) {
            my @field = split " ", <$stat>;
            my $done = $field[0] + $field[4];
            if ($done != $ended || $field[8] == 0 || $now - $last > 0.05) {
                syswrite $f, sprintf("disk %.3f %.3f\n", $moved, $last) if $last - $moved > 0.05;
                ($ended, $moved) = ($done, $now);
            }
        }
        $last = $now;
    }
    unlink $file;
} elsif ($command eq "now") {
    print join(" ", mark(@ARGV)), "\n";
} elsif ($command eq "calm") {
    for (my $end = time + $ARGV[0]; time < $end;) {
        my ($last, $longest, @old) = (time, 0, mark(0));
        for (1 .. 100) {
            sleep 0.01;
            my $now = time;
            $longest = $now - $last if $now - $last > $longest;
            $last = $now;
        }
        my @now = mark(0);
        my ($others, $all) = others(\@old, \@now);
        exit 0 if $longest < 0.05 && $others < 0.25 * $all;
    }
} else {
    my ($file, $pid, @old) = (@ARGV[0, 1], split " ", $ARGV[2]);
    my @now = mark($pid);
    my ($others, $all) = others(\@old, \@now);
    my (%still, %end);
    # Times that two processors reported count once.
    open my $f, "<", $file;
    for (sort {$a->[1] <=> $b->[1]} map {[split]} <$f>) {
        my ($what, $from, $to) = @$_;
        $from = $old[0] if $from < $old[0];
        $from = $end{$what} if $from < ($end{$what} // 0);
        next if $to <= $from;
        $still{$what} += $to - $from;
        $end{$what} = $to;
    }
    my @why;
    my %name = (cpu => "the machine", disk => "the disk");
    for (sort keys %still) {
        push @why, sprintf("%s stood still for %.2f s", $name{$_}, $still{$_}) if $still{$_} >= 0.1 && $still{$_} >= 0.01 * ($now[0] - $old[0]);
    }
    push @why, sprintf("others had %.0f %% of its processors", 100 * $others / $all) if $all > 0 && $others >= 0.25 * $all;
    print join(", ", @why), "\n" if @why;
    exit !@why;
}
