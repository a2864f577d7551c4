#!/usr/bin/env bash
# proves: the stack that each public call needs at -O2 on x86-64, with all calls below it and their return addresses: at
# most 512 bytes on the path of I/O, and the sizes of tests/build/stack.txt for the others. The callers' callbacks are
# not counted. No call recurses without a bound.
set -u
. "$(dirname "$0")/../lib.sh"
# gcc's graph of calls, with the frame of each function, beside the objects of make test's native variant (-O2).
${MAKE:-make} --no-print-directory -s objects-stack || exit 1
cat build/bodies/native_*.ci | perl -e '
    use strict; use warnings;
    my (%size, %calls, @table, %deep, %seen, $bad);
    open(my $table, "<", "tests/build/stack.txt") or die "no table\n";
    while (<$table>) { if (/^(\S+)\s+(\d+)\s+(\S.*)/) { push @table, [$1, $2, $3, 0] } }
    while (<STDIN>) {
        if (/^node: \{ title: "([^"]+)" label: "([^"]*)"/) {
            my ($name, $label) = ($1, $2);
            $size{$name} = $1 if $label =~ /(\d+) bytes/;
            print("$name: the frame has no bound\n"), $bad = 1 if $label =~ /bytes \(dynamic\)/;
        } elsif (/^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"/) { $calls{$1}{$2} = 1 }
    }
    sub deep {
        my ($f, $path) = @_;
        return $deep{$f} if exists $deep{$f};
        if ($path->{$f}) { $seen{$f} = 1; return 0 }
        my $most = 0;
        local $path->{$f} = 1;
        for my $callee (sort keys %{$calls{$f} || {}}) { my $d = deep($callee, $path); $most = $d if $d > $most }
        return $deep{$f} = ($size{$f} // 8) + $most; # gcc counts the return address as part of a frame
    }
    my @public = grep { !/:/ && !/_priv_/ } sort keys %size;
    deep($_, {}) for @public;
    # The first line whose pattern is the whole name.
    sub allowed { my ($f) = @_; for (@table) { if ($f =~ /^(?:$_->[0])$/) { $_->[3]++; return @$_ } } return ("", 512, "") }
    for (sort keys %seen) { s/.*://; print "$_ calls itself: without a bound?\n"; $bad = 1 }
    for (sort { $deep{$b} <=> $deep{$a} } @public) {
        my (undef, $most, $why) = allowed($_);
        printf "%6d of %5d  %-36s %s\n", $deep{$_}, $most, $_, $why if $deep{$_} > 512 || $deep{$_} > $most;
        $bad = 1 if $deep{$_} > $most;
    }
    for (@table) { print("$_->[0] in the table is not a function of a header\n"), $bad = 1 unless $_->[3] }
    printf "%d public functions; %d of them need more than 512 bytes\n", scalar @public, scalar grep { $deep{$_} > 512 } @public;
    exit($bad ? 1 : 0);' || { echo "more stack than is allowed: see above"; finish 1; }
finish
