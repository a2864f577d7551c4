# One connection, a closed loop: sends a line, reads its answer, for some seconds. A process for each connection and none
# for each request: where processes begin slowly, a loop of the shell asks for too little.
#     lines_client.pl PORT SECONDS SIZE RESULT                  each line is SIZE
#     lines_client.pl PORT SECONDS SIZE RESULT TENANT FILE      each is `TENANT OFFSET SIZE`, the next piece of FILE; every answer
#                                                               is compared with it
# Writes the bytes that it got to RESULT, the longest time for an answer in microseconds to RESULT.waited, and what was
# wrong with an answer to RESULT.short.
use strict;
use warnings;
use IO::Socket::INET;
use Time::HiRes qw(time);
my ($port, $seconds, $size, $result, $tenant, $file) = @ARGV;
my ($got, $longest, $at, $data, $wrong) = (0, 0, 0);
sub leave { # FILE TEXT
    open my $f, ">", $_[0] or die "$_[0]: $!\n";
    print $f "$_[1]\n";
}
if (defined $file) {
    open my $f, "<:raw", $file or die "$file: $!\n";
    local $/;
    $data = <$f>;
}
my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $port, Proto => "tcp") or die "port $port: $!\n";
$SIG{ALRM} = sub { $wrong = "no answer for 60 s" };
my $end = time + $seconds;
while (!defined $wrong && time < $end) {
    my ($since, $answer) = (time, "");
    alarm 60;
    syswrite $socket, defined $data ? "$tenant $at $size\n" : "$size\n";
    while (!defined $wrong && length $answer < $size) {
        my $n = sysread $socket, $answer, $size - length $answer, length $answer;
        last if !$n;
    }
    alarm 0;
    $longest = time - $since if time - $since > $longest;
    $got += length $answer;
    if (length $answer < $size) { $wrong //= "short: " . length $answer }
    elsif (defined $data) {
        $wrong = "other bytes at $at" if $answer ne substr $data, $at, $size;
        $at = ($at + $size) % length $data;
    }
}
leave("$result.short", $wrong) if defined $wrong;
leave("$result.waited", int($longest * 1e6));
leave($result, $got);
