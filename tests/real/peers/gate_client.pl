#!/usr/bin/env perl
# Asks gates for a key as fast as they answer, one request at a time on each connection, for some seconds, and writes the time of
# each answer in ms since the epoch to FILE, with the port. A connection that breaks is opened again.
# usage: gate_client.pl SECONDS FILE KEY CONNECTIONS PORT...
use strict;
use warnings;
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time sleep);
my ($seconds, $file, $key, $each, @ports) = @ARGV;
open(my $out, '>', $file) or die "$file: $!\n";
$out->autoflush(1);
my $select = IO::Select->new;
my (%port, %got, %closed);
sub begin {
    my ($p) = @_;
    my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$p", Timeout => 1);
    return $closed{$p}++ unless $s && defined syswrite($s, "get $key\r\n");
    $port{$s} = $p;
    $got{$s} = '';
    $select->add($s);
}
my $end = time + $seconds;
for my $p (@ports) { begin($p) for 1 .. $each; }
my $again = time + 0.2;
while ((my $now = time) < $end) {
    for my $s ($select->can_read(0.05)) {
        if (!sysread($s, $got{$s}, 4096, length $got{$s})) {
            $select->remove($s);
            $closed{$port{$s}}++;
            close $s;
            next;
        }
        next unless $got{$s} =~ /^(END|SERVER_ERROR[^\n]*)\r\n\z/;
        printf $out "%.3f %d %s\n", time * 1000, $port{$s}, $1 eq 'END' ? 1 : 0;
        $got{$s} = '';
        syswrite($s, "get $key\r\n");
    }
    next if $now < $again;
    $again = $now + 0.2;
    for my $p (@ports) {
        my $lost = $closed{$p} || 0;
        $closed{$p} = 0;
        begin($p) for 1 .. $lost;
    }
}
close $out or die "$file: $!\n";
